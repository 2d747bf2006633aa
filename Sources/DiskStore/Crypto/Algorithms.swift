import COpenSSL
import CacheCore
import LinuxSupport

/// OpenSSL's algorithms, fetched once, because each fetch costs 0.5 µs.
///
/// Unchecked: the object is immutable, and OpenSSL allows any thread to use a fetched algorithm.
final class Algorithms: @unchecked Sendable {
    let cipher: OpaquePointer
    let mac: OpaquePointer
    let hash: OpaquePointer

    init() throws {
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

    /// Costs about 4 µs for 8 KiB.
    func digest(of bytes: UnsafeRawBufferPointer) -> ImageDigest {
        withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { output in
            let target = output.assumingMemoryBound(to: UInt8.self).baseAddress
            // EVP_Digest fails only if it cannot allocate memory, which traps in Swift, too.
            let done = EVP_Digest(bytes.baseAddress, bytes.count, target, nil, hash, nil) == 1
            guard done, let digest = ImageDigest(UnsafeRawBufferPointer(output)) else {
                preconditionFailure("SHA-256 could not allocate memory")
            }
            return digest
        }
    }
}

extension StoreError {
    /// The error of the OpenSSL call that has just failed on this thread. OpenSSL's reason contains no input data.
    static func openSSL(failedAt doing: String) -> StoreError {
        var reason = [CChar](repeating: 0, count: 256)
        copenssl_error_reason(&reason, reason.count)
        let words = String(decoding: reason.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        return .failed("OpenSSL failed at \(doing): \(words)")
    }
}

public protocol RandomSource: Sendable {
    /// Fills the buffer with unpredictable bytes. Throws ``StoreError/failed(_:)``.
    func fill(_ buffer: UnsafeMutableRawBufferPointer) throws
}

/// OpenSSL's generator for private values: RAND_priv_bytes(3).
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

    func key() throws -> Secret {
        try withWipedMemory(32) { buffer in
            try fill(buffer)
            return Secret(UnsafeRawBufferPointer(buffer))
        }
    }
}

/// HMAC-SHA-256 (RFC 2104) under one key. Keeping the keyed context reduces the cost from 2.7 to 0.7 µs.
///
/// Unchecked: the owner ensures that one thread at a time uses it. OpenSSL wipes the key with the context.
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

    /// Writes the HMAC of `purpose`, a zero byte and the fields, each preceded by its length in four bytes. Different
    /// purposes or fields give different inputs.
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

    /// Returns the name of a profile under the key of the user's generation.
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
