import COpenSSL
import LinuxSupport
import ThumbnailCache

/// The keys of a log-in. The file that holds them *is* the log-in: where it is gone, or names another generation, what
/// lies on disk is noise.
///
///     0   "TCKEYS", 0, and the format's version
///     8   generation
///     24  image key
///     56  session key
///     88  HMAC-SHA-256 of all before and of whose it is, under names.key: damage, and a copy from elsewhere, are noticed
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
