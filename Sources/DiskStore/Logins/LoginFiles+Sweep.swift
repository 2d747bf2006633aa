import CacheCore
import LinuxSupport
import Logging

extension LoginFiles {
    /// Ends the logins that did not survive the restart, and removes files left by interrupted commits. Skips files
    /// that cannot be read.
    func sweep(until isStopped: () -> Bool, yield: YieldToOthers) {
        logged("root directories") {
            for root in [keys, sessions] {
                for entry in try disk.names(in: root) where disk.temporaries.isStale(entry.name) {
                    try disk.unlinkIfPresent(entry.name, in: root)
                }
            }
        }
        func sweep(
            _ root: Directory, _ what: String, _ body: (HashedOwner, Directory) throws -> Void,
            leftOver: (HashedOwner, Directory) throws -> Void
        ) {
            logged("\(what)s") {
                for uid in try uids(in: root) where !isStopped() {
                    guard let directory = try uidDirectory(uid, in: root) else { continue }
                    for hashedOwner in try owners(of: uid, in: root) {
                        logged(what) {
                            try locks.withLock(for: hashedOwner) { try body(hashedOwner, directory) }
                        }
                        yield()
                    }
                    try removeLeftovers(in: directory, uid: uid) { try leftOver($0, directory) }
                    removeEmptyDirectories(of: uid)
                }
            }
        }
        sweep(keys, "key file") { hashedOwner, _ in
            if !isLive(hashedOwner) { _ = try load(hashedOwner) }
        } leftOver: {
            try destroyLeftover(of: $0, in: $1)
        }
        sweep(sessions, "session file") { hashedOwner, directory in
            // The key file is checked under the lock, so that no login is half written.
            if try keyFile(of: hashedOwner) == nil {
                try disk.unlinkIfPresent(hashedOwner.user.fileName, in: directory)
            }
        } leftOver: {
            try disk.unlinkIfPresent(Disk.temporaryName(for: $0.user.fileName), in: $1)
        }
    }

    /// Destroys all key files, for a lost names.key. Returns their number.
    /// - Throws: if one could not be overwritten, or a directory could not be made durable; the others are destroyed.
    static func destroyAll(in keys: Directory, _ disk: Disk) throws -> Int {
        var count = 0
        var failure = FirstFailure()
        let reserve = EmergencyReserve(disk: disk, directory: keys)
        for uid in try disk.names(in: keys) where UInt32(name: uid.name) != nil {
            failure.attempt {
                guard let directory = try disk.existingDirectory(uid.name, in: keys) else { return }
                var failure = FirstFailure()
                for entry in try disk.names(in: directory) {
                    // Other programs may use the directory, so only names of the store are touched.
                    guard let user = HashedName(hex: entry.name.bytes.prefix(64)),
                        [user.fileName, Disk.temporaryName(for: user.fileName)].contains(entry.name)
                    else { continue }
                    failure.attempt {
                        guard let status = try disk.status(of: entry.name, in: directory), status.kind != .directory
                        else {
                            return
                        }
                        if try disk.destroy(entry.name, in: directory, reserve) { count += 1 }
                    }
                }
                try disk.sync(directory)
                try failure.rethrow()
            }
        }
        try failure.rethrow()
        return count
    }

    /// Removes temporary files of earlier runs.
    /// - Parameter remove: removes the file of an owner; called with its lock held, so that no thread is writing it.
    private func removeLeftovers(in directory: Directory, uid: UInt32, _ remove: (HashedOwner) throws -> Void) throws {
        for entry in try disk.names(in: directory) where HashedName(hex: entry.name.bytes) == nil {
            guard let user = HashedName(hex: entry.name.bytes.prefix(64)),
                entry.name == Disk.temporaryName(for: user.fileName)
            else {
                // A foreign file stays; a temporary file left by a retried fsync goes.
                if entry.kind == .file, disk.temporaries.isStale(entry.name) {
                    try disk.unlinkIfPresent(entry.name, in: directory)
                }
                continue
            }
            let hashedOwner = HashedOwner(uid: uid, user: user)
            try locks.withLock(for: hashedOwner) { try remove(hashedOwner) }
        }
    }

    private func logged(_ what: String, _ body: () throws -> Void) {
        log.onFailure("sweep step failed; the next start retries", .warning, ["step": "\(what)"]) { try body() }
    }
}
