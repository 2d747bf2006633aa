import COpenSSL
import CacheCore
import LinuxSupport

/// Key files: how one is read, how one replaces another, and how one is destroyed.
///
/// Unlinking a file leaves its bytes on the disk, and whoever reads the raw device has the keys. So no key file is let
/// go of before it was overwritten (F70), the one that a purge replaces as little as that of a log-out.
extension LoginFiles {
    /// The keys, or nil; a damaged file is ended on the way. Lock held.
    func keyFile(of hashedOwner: HashedOwner) throws -> KeyFile? {
        guard let directory = try uidDirectory(hashedOwner.uid, in: keys) else { return nil }
        let name = hashedOwner.user.fileName
        guard let file = try disk.contents(of: name, in: directory, limit: KeyFile.size) else { return nil }
        let found = try file.withBytes { try KeyFile($0) { try names.check($0, of: hashedOwner, into: $1) } }
        if found == nil { try endDamaged(hashedOwner, "its key file is damaged") }
        return found
    }

    /// Makes a key file the hashed owner's only one, durably: the commit point of a log-in and of a purge.
    ///
    /// The old one is swapped out under the temporary name, so that it is found there and destroyed whenever this is
    /// interrupted: by the next attempt, the end of the log-in, or the sweep. It is destroyed only when the new one is
    /// durable. A crash in between leaves one of the two whole.
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
    /// Where the file system cannot swap, the old file is overwritten with the new one's bytes. A rename over it would
    /// leave it without a name, and a kill before it was overwritten would leave its keys on the disk. A write of so
    /// few bytes is whole or does not happen, as far as disks go; one that was torn is a damaged key file, which is a
    /// log-out.
    private func swap(
        _ temporary: FileName, with name: FileName, in directory: Directory, _ bytes: UnsafeRawBufferPointer
    ) throws {
        do {
            return try disk.exchange(temporary, in: directory, with: name, in: directory)
        } catch {
            // There is none, or the file system cannot swap.
            if !error.isMissing && !error.isUnknownCall { throw error }
        }
        let old = try disk.status(of: name, in: directory)
        if old?.kind == .file, old?.size == Int64(bytes.count) {
            return try disk.overwrite(name, in: directory, with: bytes, at: 0)
        }
        // Nothing, or nothing that is a key file.
        _ = try disk.destroy(name, in: directory, reserve)
        try disk.rename(temporary, in: directory, to: name, in: directory)
    }

    /// Destroys what an interrupted ``write(_:of:)`` has left, which may be the old key file or a new one. What stands
    /// under the proper name is made durable first: it could be that the disk knows only of this one yet.
    func destroyLeftover(of hashedOwner: HashedOwner, in directory: Directory) throws {
        let temporary = Disk.temporaryName(for: hashedOwner.user.fileName)
        guard try disk.status(of: temporary, in: directory) != nil else { return }
        try disk.sync(directory, .keysOf(uid: hashedOwner.uid))
        try destroyDurably(temporary, in: directory, of: hashedOwner)
    }

    /// That the file is gone is durable also where this throws.
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
    /// Overwrites a key file and unlinks it.
    /// - Returns: whether there was anything.
    /// - Throws: also why it could not be overwritten. It is unlinked all the same: it would never be, on a disk that
    ///   has lost the sector. There is no receipt for that; whoever tries again finds nothing.
    func destroy(_ name: FileName, in directory: Directory, _ reserve: EmergencyReserve) throws -> Bool {
        guard let status = try status(of: name, in: directory) else { return false }
        if status.kind == .directory {
            try removeDirectory(name, in: directory)
            return true
        }
        // A sector may take it the second time.
        var failure: SystemError?
        for _ in 0..<2 {
            failure = nil
            do {
                try reserve.givingUp { try overwrite(name, in: directory) }
                break
            } catch let error as SystemError {
                // Only a file system that never writes in place says that there is no room; there is nothing to
                // overwrite then.
                if error.isNoSpace { break }
                guard error.isOfMedium else { throw error }
                failure = error
            }
        }
        try unlinkIfPresent(name, in: directory)
        if let failure { throw failure }
        return true
    }
}

/// A file of zeros beside the keys that takes the room which a purge or a log-out on a full disk needs (F4): blocks and
/// an inode. It is given up for that and made anew when there is room.
struct EmergencyReserve: Sendable {
    static let fileName: FileName = "reserve"
    private static let size = 64 << 10

    let disk: Disk
    /// That of the keys.
    let directory: Directory
    /// Called when the room was given up, so that the reserve is restored later.
    var whenReleased: @Sendable () -> Void = {}

    /// Does what must not fail for want of room (F4): if it does, once more with the room of the reserve.
    func givingUp(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch let error as SystemError where error.isNoSpace {
            // Somebody else may have given it up a moment ago: then there is room as well.
            try release()
            whenReleased()
            try body()
        }
    }

    /// Makes it if it is not there. Throws when there is no room, which is no reason not to go on.
    func restore() throws(SystemError) {
        if let status = try disk.status(of: Self.fileName, in: directory), status.size == Self.size { return }
        try disk.unlinkIfPresent(Self.fileName, in: directory)
        do {
            var file = try disk.open(Self.fileName, in: directory, for: .creating)
            try file.writeZeros(Self.size)
            try file.close()
        } catch {
            // What stays is of the wrong size, and the next attempt makes it anew.
            disk.unlinkIfPossible(Self.fileName, in: directory)
            throw error
        }
    }

    /// Gives the room up, also what a run before this one has set aside.
    private func release() throws(SystemError) { try disk.unlinkIfPresent(Self.fileName, in: directory) }
}

/// The keys of a log-in. The file that holds them *is* the log-in: where it is gone, or names another generation, what
/// lies on disk is noise.
///
///     0   "TCKEYS", 0, and the format's version
///     8   generation
///     24  image key
///     56  session key
///     88  HMAC-SHA-256 of all before and of whose it is, under names.key: damage and copies from elsewhere
///         are noticed
package struct KeyFile {
    package static let size = 120
    private static let magic = Array("TCKEYS".utf8) + [0, 1]
    private static let checkStart = 88

    let generation: GenerationID
    let imageKey: Secret
    let sessionKey: Secret

    /// New ones.
    init(random: any RandomSource, sessionKey: Secret? = nil) throws {
        generation = try random.generationID()
        imageKey = try random.key()
        self.sessionKey = try sessionKey ?? random.key()
    }

    /// nil unless the bytes are a key file of this format.
    /// - Parameter check: makes the 32 bytes that must stand at the end.
    package init?(
        _ bytes: UnsafeRawBufferPointer,
        check: (UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer) throws -> Void
    ) rethrows {
        var reader = ByteReader(bytes)
        guard bytes.count == Self.size, let magic = reader.take(8), magic.elementsEqual(Self.magic),
            let generation = reader.take(16), let imageKey = reader.take(32), let sessionKey = reader.take(32),
            let found = reader.take(32)
        else { return nil }
        let isRight = try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { expected in
            try check(UnsafeRawBufferPointer(rebasing: bytes[..<Self.checkStart]), expected)
            return CRYPTO_memcmp(found.baseAddress, expected.baseAddress, 32) == 0
        }
        guard isRight else { return nil }
        self.generation = GenerationID(generation)
        self.imageKey = Secret(imageKey)
        self.sessionKey = Secret(sessionKey)
    }

    /// Lends the file's bytes.
    func withEncoded<Result>(
        check: (UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer) throws -> Void,
        _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        try withWipedMemory(Self.size) { file in
            file.copyBytes(from: Self.magic + generation.bytes)
            imageKey.withBytes { UnsafeMutableRawBufferPointer(rebasing: file[24..<56]).copyBytes(from: $0) }
            sessionKey.withBytes { UnsafeMutableRawBufferPointer(rebasing: file[56..<88]).copyBytes(from: $0) }
            try check(
                UnsafeRawBufferPointer(rebasing: file[..<Self.checkStart]),
                UnsafeMutableRawBufferPointer(rebasing: file[Self.checkStart...]))
            return try body(UnsafeRawBufferPointer(file))
        }
    }
}
