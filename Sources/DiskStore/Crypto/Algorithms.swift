import COpenSSL
import LinuxSupport
import NIOCore
import ThumbnailCache

/// OpenSSL's algorithms, fetched once: fetching at each use costs half a microsecond.
///
/// Immutable after it was made, and OpenSSL lets any thread use a fetched algorithm; the compiler cannot know either.
final class Algorithms: @unchecked Sendable {
    let cipher: OpaquePointer
    let mac: OpaquePointer
    let hash: OpaquePointer

    init() throws {
        guard let cipher = EVP_CIPHER_fetch(nil, "AES-256-GCM", nil) else { throw Self.missing("AES-256-GCM") }
        guard let mac = EVP_MAC_fetch(nil, "HMAC", nil) else {
            EVP_CIPHER_free(cipher)
            throw Self.missing("HMAC")
        }
        guard let hash = EVP_MD_fetch(nil, "SHA256", nil) else {
            EVP_CIPHER_free(cipher)
            EVP_MAC_free(mac)
            throw Self.missing("SHA256")
        }
        self.cipher = cipher
        self.mac = mac
        self.hash = hash
    }

    deinit {
        EVP_CIPHER_free(cipher)
        EVP_MAC_free(mac)
        EVP_MD_free(hash)
    }

    private static func missing(_ name: String) -> StoreError {
        .failed("OpenSSL offers no \(name); its default provider is needed")
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
    /// A call into OpenSSL has just failed on this thread, with OpenSSL's reason. It is for want of memory most likely, and never holds
    /// what was worked on.
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
