import LinuxSupport
import Logging
import ThumbnailCache

/// Whether the machine has booted since the last start: the file `boot` in the state directory holds the id of that boot.
enum BootRecord {
    static let fileName: FileName = "boot"
    /// Bytes. The kernel's id is a UUID of 36 characters.
    private static let longest = 128

    /// Whether a boot has come between the last start and this one.
    /// - Parameters:
    ///   - recorded: nil where there is no record.
    ///   - current: the id of this boot.
    static func isNewBoot(recorded: String?, current: String) -> Bool {
        // Without a record nothing says that there was none, and what a boot is to end must not outlive it.
        recorded != current
    }

    static func read(in state: Directory, disk: Disk) throws -> String? {
        guard let file = try disk.contents(of: fileName, in: state, limit: longest) else { return nil }
        return file.withBytes { String(decoding: $0, as: UTF8.self) }
    }

    static func write(_ id: String, in state: Directory, disk: Disk) throws {
        try disk.replace(fileName, in: state, with: id.utf8)
    }
}

extension DiskStore {
    /// Ends what a boot is to end, and keeps on record which boot this is: last, so that a start that is interrupted before
    /// is followed by one that begins anew. Costs a few system calls for each log-in that ends. To be called before anybody
    /// is served.
    /// - Parameters:
    ///   - bootID: `/proc/sys/kernel/random/boot_id`.
    ///   - endsLogins: whether a boot since the last start logs everybody out.
    /// - Throws: ``StoreError`` when a log-out could not be made durable, or the record where a boot ends log-ins.
    public func recordBoot(_ bootID: String, endsLogins: Bool) throws {
        try storeErrors("logging everybody out after a boot") {
            let recorded = try BootRecord.read(in: state, disk: logins.disk)
            guard BootRecord.isNewBoot(recorded: recorded, current: bootID) else { return }
            if endsLogins {
                let count = try endEveryLogin()
                logins.log.notice(
                    "everybody is logged out, since the machine has booted", metadata: ["users": "\(count)"])
            }
            do {
                try logins.givingUpReserve { try BootRecord.write(bootID, in: state, disk: logins.disk) }
            } catch let error as SystemError where !endsLogins {
                // The next start takes this boot for a new one, too, and ends nothing either unless it is told to by then.
                logins.log.error("the boot cannot be put on record", metadata: ["error": "\(error)"])
            }
        }
    }

    /// Returns how many there were.
    private func endEveryLogin() throws -> Int {
        var count = 0
        for uid in try logins.uids() {
            for sealedOwner in try logins.owners(of: uid) {
                try logins.withLock(sealedOwner) {
                    try logins.end(sealedOwner)
                    leaveToTrash(sealedOwner)
                }
                count += 1
            }
        }
        return count
    }
}
