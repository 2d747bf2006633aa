import COpenSSL
import CacheCore
import LinuxSupport

/// Reading, replacing and destroying key files.
///
/// Unlinking leaves a file's bytes on the disk, where the raw device reveals them. Every key file is therefore
/// overwritten before it is unlinked (F70), at a purge as at a logout.
extension LoginFiles {
    /// Reads the keys; nil if there is no login. Ends the login if the file is damaged. The lock is held.
    func keyFile(of hashedOwner: HashedOwner) throws -> KeyFile? {
        guard let directory = try uidDirectory(hashedOwner.uid, in: keys) else { return nil }
        let name = hashedOwner.user.fileName
        guard let file = try disk.contents(of: name, in: directory, limit: KeyFile.size) else { return nil }
        let found = try file.withBytes { try KeyFile($0) { try names.check($0, of: hashedOwner, into: $1) } }
        if found == nil { try endDamaged(hashedOwner, "damaged key file") }
        return found
    }

    /// Makes `keyFile` the only one of its owner, durably. This is the commit point of a login and of a purge.
    ///
    /// The old file is swapped to the temporary name, where the next attempt, a logout or the sweep destroys it after
    /// an interruption. It is destroyed after the new one is durable. A crash in between leaves one of the two intact.
    func write(_ keyFile: KeyFile, of hashedOwner: HashedOwner) throws {
        let directory = try existingUIDDirectory(hashedOwner.uid, in: keys)
        let name = hashedOwner.user.fileName
        let temporary = Disk.temporaryName(for: name)
        try destroyLeftover(of: hashedOwner, in: directory)
        try keyFile.withEncoded(check: { try names.check($0, of: hashedOwner, into: $1) }) { bytes in
            try disk.create(temporary, in: directory, with: bytes)
            try swap(temporary, with: name, in: directory, bytes)
        }
        try disk.sync(directory, .keysOf(uid: hashedOwner.uid))
        try destroyDurably(temporary, in: directory, of: hashedOwner)
    }

    /// Swaps a key file with the one that it replaces, if there is one.
    ///
    /// If the file system cannot swap, overwrites the old file in place. Renaming over it would unlink it, and a kill
    /// before it was overwritten would leave its keys on the disk. Disks write so few bytes atomically; a torn write
    /// would leave a damaged key file, which ends the login.
    private func swap(
        _ temporary: FileName, with name: FileName, in directory: Directory, _ bytes: UnsafeRawBufferPointer
    ) throws {
        do {
            return try disk.exchange(temporary, with: name, in: directory)
        } catch {
            // There is no old file, or the file system cannot swap.
            if !error.isMissing && !error.isUnknownCall { throw error }
        }
        let old = try disk.status(of: name, in: directory)
        if old?.kind == .file, old?.size == Int64(bytes.count) {
            return try disk.overwrite(name, in: directory, with: bytes, at: 0)
        }
        // There is no old file, or it is not a key file.
        _ = try disk.destroy(name, in: directory, reserve)
        try disk.rename(temporary, in: directory, to: name, in: directory)
    }

    /// Destroys the file that an interrupted ``write(_:of:)`` has left: the old or the new key file. First makes the
    /// current file durable, since the disk may know only the other one.
    func destroyLeftover(of hashedOwner: HashedOwner, in directory: Directory) throws {
        let temporary = Disk.temporaryName(for: hashedOwner.user.fileName)
        guard try disk.status(of: temporary, in: directory) != nil else { return }
        try disk.sync(directory, .keysOf(uid: hashedOwner.uid))
        try destroyDurably(temporary, in: directory, of: hashedOwner)
    }

    /// Destroys a file. The removal is durable even if this throws.
    private func destroyDurably(_ name: FileName, in directory: Directory, of hashedOwner: HashedOwner) throws {
        do {
            _ = try disk.destroy(name, in: directory, reserve)
        } catch {
            try disk.sync(directory, .keysOf(uid: hashedOwner.uid))
            throw error
        }
    }
}

extension Disk {
    /// Overwrites a key file and unlinks it. Returns whether it existed.
    /// - Throws: also if it could not be overwritten. It is unlinked nevertheless, because a bad sector can never be
    ///   overwritten; a retry then succeeds.
    func destroy(_ name: FileName, in directory: Directory, _ reserve: EmergencyReserve) throws -> Bool {
        guard let status = try status(of: name, in: directory) else { return false }
        if status.kind == .directory {
            try removeDirectory(name, in: directory)
            return true
        }
        // The second attempt may succeed, because disks reallocate bad sectors.
        var failure: SystemError?
        for _ in 0..<2 {
            failure = nil
            do {
                try reserve.retryingWithReserve { try overwrite(name, in: directory) }
                break
            } catch let error as SystemError {
                // Only a file system that never writes in place lacks room here, and there overwriting has no effect.
                if error.isNoSpace { break }
                guard error.isMediumError else { throw error }
                failure = error
            }
        }
        try unlinkIfPresent(name, in: directory)
        if let failure { throw failure }
        return true
    }
}
