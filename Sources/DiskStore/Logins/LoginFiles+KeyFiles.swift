import Glibc
import ThumbnailCache

/// Key files: how one is read, how one takes another's place, and how one is destroyed.
///
/// Unlinking a file leaves its bytes on the disk, and whoever reads the raw device has the keys. So no key file is let go of before
/// it was overwritten (F70), the one that a purge replaces as little as that of a log-out.
extension LoginFiles {
    /// The keys, or nil; a damaged file is ended on the way. Lock held.
    func keyFile(of sealedOwner: SealedOwner) throws -> KeyFile? {
        guard let directory = try uidDirectory(sealedOwner.uid, in: keys) else { return nil }
        let name = sealedOwner.user.fileName
        guard let file = try disk.contents(of: name, in: directory, limit: KeyFile.size) else { return nil }
        let found = try file.withBytes { bytes in
            try KeyFile(bytes) { try names.check($0, uid: sealedOwner.uid, user: sealedOwner.user, into: $1) }
        }
        if found == nil { try endDamaged(sealedOwner, "its key file is damaged") }
        return found
    }

    /// Makes a key file the sealedOwner's only one, durably: the commit point of a log-in and of a purge.
    ///
    /// The old one is swapped out under the temporary name, so that it is found there and destroyed whenever this is interrupted:
    /// by the next attempt, the end of the log-in, or the sweep. It is destroyed only when the new one is durable. A
    /// crash in between leaves one of the two whole.
    func write(_ keyFile: KeyFile, of sealedOwner: SealedOwner) throws {
        let directory = try existingUIDDirectory(sealedOwner.uid, in: keys)
        let name = sealedOwner.user.fileName
        let temporary = Disk.temporaryName(for: name)
        try destroyLeftover(of: sealedOwner, in: directory)
        try keyFile.withEncoded(check: { try names.check($0, uid: sealedOwner.uid, user: sealedOwner.user, into: $1) })
        { bytes in
            try disk.create(temporary, in: directory, with: bytes)
        }
        let replaced = try place(temporary, as: name, in: directory)
        try directorySync.sync(directory, .keysOf(uid: sealedOwner.uid))
        if let replaced { try unlessNoSpace { try replaced.file.overwrite() } }
        try destroy(temporary, in: directory)
    }

    /// Swaps a key file with the one in whose place it comes, if there is one.
    /// - Returns: the old file, where the file system cannot swap: no name leads to that one any more.
    private func place(_ temporary: FileName, as name: FileName, in directory: Directory) throws -> ReplacedFile? {
        do {
            try disk.exchange(temporary, in: directory, with: name, in: directory)
            return nil
        } catch {
            // There is none, or the file system cannot swap.
            if !error.isMissing && !error.isUnknownCall { throw error }
        }
        let old = try ReplacedFile.open(name, in: directory, disk)
        try disk.rename(temporary, in: directory, to: name, in: directory)
        return old
    }

    /// Destroys what an interrupted ``write(_:of:)`` has left, which may be the old key file or a new one. What stands under the
    /// proper name is made durable first: it could be that the disk knows only of this one yet.
    func destroyLeftover(of sealedOwner: SealedOwner, in directory: Directory) throws {
        let temporary = Disk.temporaryName(for: sealedOwner.user.fileName)
        guard try disk.status(of: temporary, in: directory) != nil else { return }
        try directorySync.sync(directory, .keysOf(uid: sealedOwner.uid))
        try destroy(temporary, in: directory)
    }

    /// Overwrites a key file and unlinks it.
    /// - Returns: whether there was anything.
    @discardableResult
    func destroy(_ name: FileName, in directory: Directory) throws -> Bool {
        guard let status = try disk.status(of: name, in: directory) else { return false }
        if status.kind == .directory {
            try disk.removeDirectory(name, in: directory)
            return true
        }
        try unlessNoSpace { try disk.overwrite(name, in: directory) }
        try disk.unlinkIfPresent(name, in: directory)
        return true
    }

    private func unlessNoSpace(_ overwrite: () throws -> Void) throws {
        do {
            try givingUpReserve(overwrite)
        } catch let error as SystemError where error.isNoSpace {
            // Only a file system that never writes in place says this; there is nothing to overwrite then.
        }
    }
}

/// A key file that was renamed over and is to be overwritten yet.
private final class ReplacedFile: Sendable {
    let file: OpenFile

    private init(_ file: consuming OpenFile) {
        self.file = file
    }

    /// nil where there is none.
    static func open(_ name: FileName, in directory: Directory, _ disk: Disk) throws(SystemError) -> ReplacedFile? {
        do {
            return ReplacedFile(try disk.open(name, in: directory, for: .overwriting))
        } catch {
            if error.isMissing || error.isOfWrongKind { return nil }
            throw error
        }
    }
}
