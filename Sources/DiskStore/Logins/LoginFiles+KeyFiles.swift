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
            return try disk.exchange(temporary, in: directory, with: name, in: directory)
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

/// A file of zeros beside the keys. It reserves the blocks and the inode that a purge or logout needs on a full disk
/// (F4). It is removed when needed and recreated when there is room.
struct EmergencyReserve: Sendable {
    static let fileName: FileName = "reserve"
    private static let size = 64 << 10

    let disk: Disk
    let directory: Directory
    /// Called after the reserve is released, so that it is restored later.
    var whenReleased: @Sendable () -> Void = {}

    /// Runs `body` and, if the disk is full, releases the reserve and runs it again (F4).
    func retryingWithReserve(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch let error as SystemError where error.isNoSpace {
            // Another thread may have released it already; there is room then, too.
            try release()
            whenReleased()
            try body()
        }
    }

    /// Creates the reserve if it is missing. Throws if there is no room, which is harmless.
    func restore() throws(SystemError) {
        if let status = try disk.status(of: Self.fileName, in: directory), status.size == Self.size { return }
        try disk.unlinkIfPresent(Self.fileName, in: directory)
        do {
            var file = try disk.open(Self.fileName, in: directory, for: .creating)
            try file.writeZeros(Self.size)
            try file.close()
        } catch {
            // An incomplete file has the wrong size; the next attempt replaces it.
            disk.unlinkIfPossible(Self.fileName, in: directory)
            throw error
        }
    }

    private func release() throws(SystemError) { try disk.unlinkIfPresent(Self.fileName, in: directory) }
}

/// The keys of a login. The file *is* the login: without it, or with another generation in it, the stored data is
/// unreadable.
///
///     0   "TCKEYS", 0, format version
///     8   generation
///     24  image key
///     56  session key
///     88  HMAC-SHA-256 of the above and the owner under names.key, to detect damage and copied files
package struct KeyFile {
    package static let size = 120
    private static let magic = Array("TCKEYS".utf8) + [0, 1]
    private static let checkStart = 88

    let generation: GenerationID
    let imageKey: Secret
    let sessionKey: Secret

    init(random: any RandomSource, sessionKey: Secret? = nil) throws {
        generation = try random.generationID()
        imageKey = try random.key()
        self.sessionKey = try sessionKey ?? random.key()
    }

    /// Nil unless the bytes are a valid key file. `check` computes the 32 bytes expected at the end.
    package init?(
        _ bytes: UnsafeRawBufferPointer,
        check: (UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer) throws -> Void
    ) rethrows {
        var reader = ByteReader(bytes)
        guard bytes.count == Self.size, let magic = reader.read(8), magic.elementsEqual(Self.magic),
            let generation = reader.read(16), let imageKey = reader.read(32), let sessionKey = reader.read(32),
            let found = reader.read(32)
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
