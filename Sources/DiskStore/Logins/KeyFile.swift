import COpenSSL
import CacheCore
import LinuxSupport

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
