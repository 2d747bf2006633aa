import COpenSSL
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

/// The key of all user names on disk: made at the first start, never changed. Without it nobody can tell whose what is.
///
///     0   "TCNAME", 0, and the format's version
///     8   key
///     40  first half of an HMAC-SHA-256 under the key: damage is noticed
final class NamesKey: Sendable {
    static let fileName: FileName = "names.key"
    static let size = 56
    static let magic = Array("TCNAME".utf8) + [0, 1]

    private let mac: NIOLockedValueBox<Mac>

    private init(_ mac: Mac) {
        self.mac = NIOLockedValueBox(mac)
    }

    /// A new key, and the file that keeps it.
    static func make(random: any RandomSource, algorithms: Algorithms) throws -> (NamesKey, file: Secret) {
        let key = try random.key()
        let mac = try Mac(key: key, algorithms: algorithms)
        let file = try withWipedMemory(Self.size + 16) { file in
            file.copyBytes(from: magic)
            key.withBytes { UnsafeMutableRawBufferPointer(rebasing: file[8..<40]).copyBytes(from: $0) }
            try mac.authenticate("names.key", [], into: UnsafeMutableRawBufferPointer(rebasing: file[40...]))
            return Secret(UnsafeRawBufferPointer(rebasing: file[..<Self.size]))
        }
        return (NamesKey(mac), file)
    }

    /// What is wrong with the file, as the end of a sentence; nil when it is fine.
    enum Found {
        case key(NamesKey)
        case wrong(String)
    }

    static func read(_ file: Secret, _ algorithms: Algorithms) throws -> Found {
        try file.withBytes { bytes in
            var reader = ByteReader(bytes)
            guard bytes.count == size, let magic = reader.take(8), let key = reader.take(32),
                let check = reader.take(16)
            else { return .wrong("has \(bytes.count) bytes instead of \(size)") }
            guard magic.elementsEqual(Self.magic) else { return .wrong("is no names.key of this version") }
            let mac = try Mac(key: Secret(key), algorithms: algorithms)
            let isRight = try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { expected in
                try mac.authenticate("names.key", [], into: expected)
                return CRYPTO_memcmp(check.baseAddress, expected.baseAddress, 16) == 0
            }
            return isRight ? .key(NamesKey(mac)) : .wrong("is damaged: its check value does not match")
        }
    }

    /// The name of an owner on disk.
    func name(of owner: Owner) throws -> SealedName {
        try mac.withLockedValue { mac in
            try withUnsafeBytes(of: owner.uid.bigEndian) { uid in
                try owner.user.withBytes { try mac.name("user", uid, $0) }
            }
        }
    }

    /// The check value of a key file; it binds whose the file is.
    func check(
        _ contents: UnsafeRawBufferPointer, uid: UInt32, user: SealedName, into output: UnsafeMutableRawBufferPointer
    ) throws {
        try mac.withLockedValue { mac in
            try withUnsafeBytes(of: uid.bigEndian) { uid in
                try user.bytes.withUnsafeBytes { try mac.authenticate("key file", [uid, $0, contents], into: output) }
            }
        }
    }
}
