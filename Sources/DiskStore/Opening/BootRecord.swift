import LinuxSupport
import Logging
import ThumbnailCache

extension DiskStore {
    /// Ends what a boot is to end, and keeps on record which boot this is: last, so that a start that is interrupted before
    /// is followed by one that begins anew. Costs a few system calls for each log-in that ends. To be called before anybody
    /// is served.
    /// - Parameters:
    ///   - bootID: `/proc/sys/kernel/random/boot_id`.
    ///   - endsLogins: whether a boot since the last start logs everybody out.
    /// - Throws: ``StoreError`` when a log-out could not be made durable, or the record where a boot ends log-ins.
    public func recordBoot(_ bootID: String, endsLogins: Bool) throws {
        let disk = logins.disk
        let fileName: FileName = "boot"
        try storeErrors("logging everybody out after a boot") {
            // The kernel's id is a UUID of 36 characters. Without a record nothing says that there was no boot, and what one is to end
            // must not outlive it.
            let recorded = try disk.contents(of: fileName, in: state, limit: 128)
            if let recorded, recorded.withBytes({ $0.elementsEqual(bootID.utf8) }) { return }
            if endsLogins {
                let count = try endEveryLogin()
                logins.log.notice(
                    "everybody is logged out, since the machine has booted", metadata: ["users": "\(count)"])
            }
            do {
                try logins.reserve.givingUp { try disk.replace(fileName, in: state, with: bootID.utf8) }
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
