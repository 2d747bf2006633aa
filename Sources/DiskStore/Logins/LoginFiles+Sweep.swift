import CacheCore
import Logging

extension LoginFiles {
    /// After a start: ends the log-ins that did not survive it, and removes what interrupted commits have left.
    /// What cannot be looked at now is left alone, and is met again when somebody asks for it.
    func sweep(until isStopped: () -> Bool, yield: YieldToOthers) {
        logged("the roots") {
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
                        logged("a \(what)") {
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
            // The key file is looked at second and under the lock: no log-in is half written then.
            if try keyFile(of: hashedOwner) == nil {
                try disk.unlinkIfPresent(hashedOwner.user.fileName, in: directory)
            }
        } leftOver: {
            try disk.unlinkIfPresent(Disk.temporaryName(for: $0.user.fileName), in: $1)
        }
    }

    /// Key files of everybody, destroyed: they belong to names that nobody can tell any more.
    /// - Returns: how many there were.
    /// - Throws: when one of them could not be overwritten, or a directory not be made durable; with all others
    ///   destroyed.
    static func destroyAll(in keys: Directory, _ disk: Disk) throws -> Int {
        var count = 0
        var failure = FirstFailure()
        let reserve = EmergencyReserve(disk: disk, directory: keys)
        for uid in try disk.names(in: keys) where UInt32(name: uid.name) != nil {
            failure.attempt {
                guard let directory = try disk.existingDirectory(uid.name, in: keys) else { return }
                var failure = FirstFailure()
                for entry in try disk.names(in: directory) {
                    // In a directory that others use too nothing but what bears a name of the store's is touched.
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

    /// What runs before this one have left of temporary files.
    /// - Parameter remove: removes the one of a hashed owner. Under the lock nobody is writing it.
    private func removeLeftovers(in directory: Directory, uid: UInt32, _ remove: (HashedOwner) throws -> Void) throws {
        for entry in try disk.names(in: directory) where HashedName(hex: entry.name.bytes) == nil {
            guard let user = HashedName(hex: entry.name.bytes.prefix(64)),
                entry.name == Disk.temporaryName(for: user.fileName)
            else {
                // Nothing of the store's, or made to dirty a directory by a run that died.
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
        log.attempt("the sweep of \(what) failed; it goes on at the next start") { try body() }
    }
}
