import COpenSSL
import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// The key under which user names are hashed on disk. Created at the first start and never changed.
///
///     0   "TCNAME", 0, format version
///     8   key
///     40  first half of an HMAC-SHA-256 under the key, to detect damage
final class NameHashingKey: Sendable {
    static let fileName: FileName = "names.key"
    private static let size = 56
    private static let magic = Array("TCNAME".utf8) + [0, 1]
    private static let purpose: StaticString = "names.key"

    private let mac: NIOLockedValueBox<Mac>

    private init(_ mac: Mac) { self.mac = NIOLockedValueBox(mac) }

    /// Returns the key of this store. If the file is missing, destroys all logins, whose names are no longer known,
    /// and creates a new key (F51). An invalid file stops the start: an administrator may be able to restore it.
    static func loadOrCreate(
        in home: StoreDirectory, keys: Directory, disk: Disk, algorithms: Algorithms, random: any RandomSource,
        log: Logger
    ) throws -> NameHashingKey {
        if let found = try load(in: home, of: geteuid(), disk: disk, algorithms: algorithms) { return found }
        let count = try LoginFiles.destroyAll(in: keys, disk)
        if count > 0 {
            log.warning("names.key missing; all users logged out", metadata: ["logins": "\(count)"])
        }
        return try make(in: home.directory, disk, random, algorithms)
    }

    /// Nil if the file is missing.
    /// - Parameter owner: the uid that must own the file.
    static func load(
        in home: StoreDirectory, of owner: UInt32, disk: Disk, algorithms: Algorithms
    ) throws -> NameHashingKey? {
        guard let status = try disk.status(of: fileName, in: home.directory) else { return nil }
        func wrong(_ problem: String) -> StoreStartError {
            StoreStartError(
                "\(home.path)/names.key \(problem). Restore the file, or remove it to log out all users and "
                    + "discard all images")
        }
        guard status.kind == .file else { throw wrong("is not a plain file") }
        guard status.owner == owner else { throw wrong("belongs to uid \(status.owner) instead of \(owner)") }
        guard status.permissions & 0o077 == 0 else {
            throw wrong("has mode \(String(status.permissions, radix: 8)) instead of 600")
        }
        let file = try disk.contents(of: fileName, in: home.directory, limit: 4096) ?? Secret([])
        return try file.withBytes { bytes in
            var reader = ByteReader(bytes)
            guard bytes.count == size, let magic = reader.read(8), let key = reader.read(32),
                let check = reader.read(16)
            else { throw wrong("has \(bytes.count) bytes instead of \(size)") }
            guard magic.elementsEqual(Self.magic) else { throw wrong("is not a names.key of this version") }
            let mac = try Mac(key: Secret(key), algorithms: algorithms)
            let isRight = try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { expected in
                try mac.authenticate(purpose, [], into: expected)
                return CRYPTO_memcmp(check.baseAddress, expected.baseAddress, 16) == 0
            }
            guard isRight else { throw wrong("is damaged: its check value does not match") }
            return NameHashingKey(mac)
        }
    }

    private static func make(
        in home: Directory, _ disk: Disk, _ random: any RandomSource, _ algorithms: Algorithms
    ) throws -> NameHashingKey {
        let key = try random.key()
        let mac = try Mac(key: key, algorithms: algorithms)
        // The HMAC has 32 bytes, of which the file contains the first 16.
        try withWipedMemory(Self.size + 16) { file in
            file.copyBytes(from: magic)
            key.withBytes { UnsafeMutableRawBufferPointer(rebasing: file[8..<40]).copyBytes(from: $0) }
            try mac.authenticate(purpose, [], into: UnsafeMutableRawBufferPointer(rebasing: file[40...]))
            try disk.replace(fileName, in: home, with: UnsafeRawBufferPointer(rebasing: file[..<Self.size]))
        }
        return NameHashingKey(mac)
    }

    /// Destroys the keys in a directory that this configuration does not use.
    static func destroyUnused(in home: Directory, disk: Disk, log: Logger) throws {
        if let keys = try unlessMissing({ () throws(SystemError) in try disk.openDirectory("keys", in: home) }) {
            let count = try LoginFiles.destroyAll(in: keys, disk)
            if count > 0 {
                log.warning(
                    "keys moved by the configuration; all users logged out", metadata: ["logins": "\(count)"])
            }
        }
        // Another program may have a file of the same name.
        let file = try disk.contents(of: fileName, in: home, limit: 4096)
        guard let file, file.withBytes({ $0.starts(with: magic) }) else { return }
        try disk.overwrite(fileName, in: home)
        try disk.unlinkIfPresent(fileName, in: home)
        try disk.sync(home)
    }

    func name(of owner: Owner) throws -> HashedName {
        try mac.withLockedValue { mac in
            try withUnsafeBytes(of: owner.uid.bigEndian) { uid in
                try owner.user.withBytes { try mac.name("user", uid, $0) }
            }
        }
    }

    /// Writes the check value of a key file. It covers the owner, so that a copied key file is invalid elsewhere.
    func check(
        _ contents: UnsafeRawBufferPointer, of owner: HashedOwner, into output: UnsafeMutableRawBufferPointer
    ) throws {
        try mac.withLockedValue { mac in
            try withUnsafeBytes(of: owner.uid.bigEndian) { uid in
                try owner.user.bytes.withUnsafeBytes {
                    try mac.authenticate("key file", [uid, $0, contents], into: output)
                }
            }
        }
    }
}
