import COpenSSL
import CacheCore
import LinuxSupport

/// OpenSSL's algorithms, fetched once: fetching at each use costs half a microsecond.
///
/// Immutable after it was made, and OpenSSL lets any thread use a fetched algorithm; the compiler cannot know either.
final class Algorithms: @unchecked Sendable {
    let cipher: OpaquePointer
    let mac: OpaquePointer
    let hash: OpaquePointer

    init() throws {
        // Where one is missing the process ends.
        guard let cipher = EVP_CIPHER_fetch(nil, "AES-256-GCM", nil), let mac = EVP_MAC_fetch(nil, "HMAC", nil),
            let hash = EVP_MD_fetch(nil, "SHA256", nil)
        else {
            throw StoreError.failed("OpenSSL lacks AES-256-GCM, HMAC or SHA256; its default provider is needed")
        }
        (self.cipher, self.mac, self.hash) = (cipher, mac, hash)
    }

    deinit {
        EVP_CIPHER_free(cipher)
        EVP_MAC_free(mac)
        EVP_MD_free(hash)
    }

    /// SHA-256. Costs about 4 µs for 8 KiB.
    func digest(of bytes: UnsafeRawBufferPointer) -> ImageDigest {
        withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { output in
            let target = output.assumingMemoryBound(to: UInt8.self).baseAddress
            // Only an allocation inside OpenSSL can fail here, where Swift itself would already have trapped.
            let done = EVP_Digest(bytes.baseAddress, bytes.count, target, nil, hash, nil) == 1
            guard done, let digest = ImageDigest(UnsafeRawBufferPointer(output)) else {
                preconditionFailure("SHA-256 failed for want of memory")
            }
            return digest
        }
    }
}

extension StoreError {
    /// A call into OpenSSL has just failed on this thread, with OpenSSL's reason. It is for want of memory most likely,
    /// and never holds what was worked on.
    static func openSSL(failedAt doing: String) -> StoreError {
        var reason = [CChar](repeating: 0, count: 256)
        copenssl_take_reason(&reason, reason.count)
        let words = String(decoding: reason.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        return .failed("OpenSSL failed at \(doing): \(words)")
    }
}

/// Where keys, nonces and names come from. A parameter, so that a test can tell what was drawn.
public protocol RandomSource: Sendable {
    /// Fills the buffer with bytes that nobody can predict. Throws ``StoreError/failed(_:)``.
    func fill(_ buffer: UnsafeMutableRawBufferPointer) throws
}

/// OpenSSL's generator, seeded by the kernel. RAND_priv_bytes(3): its output is never shown to anybody as is.
public struct SecureRandom: RandomSource {
    public init() {}

    public func fill(_ buffer: UnsafeMutableRawBufferPointer) throws {
        let bytes = buffer.assumingMemoryBound(to: UInt8.self)
        guard RAND_priv_bytes(bytes.baseAddress, Int32(buffer.count)) == 1 else {
            throw StoreError.openSSL(failedAt: "random bytes")
        }
    }
}

extension RandomSource {
    func generationID() throws -> GenerationID {
        try withUnsafeTemporaryAllocation(byteCount: 16, alignment: 8) { buffer in
            try fill(buffer)
            return GenerationID(UnsafeRawBufferPointer(buffer))
        }
    }

    /// 256 bits.
    func key() throws -> Secret {
        try withWipedMemory(32) { buffer in
            try fill(buffer)
            return Secret(UnsafeRawBufferPointer(buffer))
        }
    }
}

/// HMAC-SHA-256 (RFC 2104) under one key, with the keyed context kept: 0.7 µs instead of 2.7.
///
/// Used by one thread at a time, whoever owns it sees to that; that is why it may travel between threads. OpenSSL wipes
/// the key when the context is freed.
final class Mac: @unchecked Sendable {
    private let context: OpaquePointer

    init(key: Secret, algorithms: Algorithms) throws {
        guard let context = EVP_MAC_CTX_new(algorithms.mac) else { throw Self.failure }
        self.context = context
        let isKeyed = key.withBytes { key in
            copenssl_hmac_sha256_init(context, key.assumingMemoryBound(to: UInt8.self).baseAddress, key.count) == 1
        }
        guard isKeyed else { throw Self.failure }
    }

    deinit { EVP_MAC_CTX_free(context) }

    /// Writes the 32 bytes over `purpose`, a zero byte, and the fields, each with its length before it in four bytes:
    /// no two inputs are ever the same text, and no two purposes.
    func authenticate(
        _ purpose: StaticString, _ fields: [UnsafeRawBufferPointer], into output: UnsafeMutableRawBufferPointer
    ) throws {
        guard EVP_MAC_init(context, nil, 0, nil) == 1 else { throw Self.failure }
        try update(UnsafeRawBufferPointer(start: purpose.utf8Start, count: purpose.utf8CodeUnitCount))
        try withUnsafeBytes(of: UInt8(0)) { try update($0) }
        for field in fields {
            try withUnsafeBytes(of: UInt32(truncatingIfNeeded: field.count).bigEndian) { try update($0) }
            try update(field)
        }
        var written = 0
        let target = output.assumingMemoryBound(to: UInt8.self).baseAddress
        guard EVP_MAC_final(context, target, &written, output.count) == 1, written == 32 else { throw Self.failure }
    }

    func name(_ purpose: StaticString, _ fields: UnsafeRawBufferPointer...) throws -> HashedName {
        try withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { output in
            try authenticate(purpose, fields, into: output)
            return HashedName(UnsafeRawBufferPointer(output))
        }
    }

    /// The name of a profile, under a key of the user's generation.
    func profileName(of profile: OpaqueID) throws -> HashedName {
        try profile.withBytes { try name("profile", $0) }
    }

    private func update(_ part: UnsafeRawBufferPointer) throws {
        guard EVP_MAC_update(context, part.assumingMemoryBound(to: UInt8.self).baseAddress, part.count) == 1 else {
            throw Self.failure
        }
    }

    private static var failure: StoreError { .openSSL(failedAt: "HMAC") }
}
