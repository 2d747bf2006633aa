import COpenSSL
import CacheCore
import LinuxSupport
import NIOConcurrencyHelpers

/// AES-256-GCM (NIST SP 800-38D) and HMAC-SHA-256 under one key. Keeps OpenSSL's contexts, because setting one up costs
/// as much as encrypting a small image.
///
/// Unchecked: one operation at a time uses a cipher of ``EntryCipherPool``. OpenSSL wipes keys with the contexts.
final class EntryCipher: @unchecked Sendable {
    /// Bytes of a nonce: 96 random bits for each encryption.
    static let nonceLength = 12
    static let tagLength = 16
    static let overhead = nonceLength + tagLength

    private let sealing: OpaquePointer
    private let opening: OpaquePointer
    /// HMAC under a key derived from the cipher's, so that no key is used with two algorithms.
    let names: Mac

    init(key: Secret, algorithms: Algorithms) throws {
        names = try withWipedMemory(32) { derived in
            try Mac(key: key, algorithms: algorithms).authenticate("thumbcached names 1", [], into: derived)
            return try Mac(key: Secret(UnsafeRawBufferPointer(derived)), algorithms: algorithms)
        }
        guard let sealing = EVP_CIPHER_CTX_new() else { throw Self.failure("a context") }
        guard let opening = EVP_CIPHER_CTX_new() else {
            EVP_CIPHER_CTX_free(sealing)
            throw Self.failure("a context")
        }
        (self.sealing, self.opening) = (sealing, opening)
        let isKeyed = key.withBytes { bytes in
            let pointer = bytes.assumingMemoryBound(to: UInt8.self).baseAddress
            return bytes.count == 32
                && EVP_EncryptInit_ex2(sealing, algorithms.cipher, pointer, nil, nil) == 1
                && EVP_DecryptInit_ex2(opening, algorithms.cipher, pointer, nil, nil) == 1
        }
        guard isKeyed else { throw Self.failure("the cipher's key") }
    }

    deinit {
        EVP_CIPHER_CTX_free(sealing)
        EVP_CIPHER_CTX_free(opening)
    }

    func address(of imageKey: ImageKey) throws -> EntryAddress {
        EntryAddress(profile: try names.profileName(of: imageKey.profile), code: imageKey.code)
    }

    /// Encrypts `first` and `second` as one text. Writes a new nonce, the ciphertext and the tag to `sealed`.
    /// - Parameter authenticated: additional authenticated data; ``open(_:authenticating:)`` needs the same.
    func seal(
        _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer,
        authenticating authenticated: UnsafeRawBufferPointer,
        into sealed: UnsafeMutableRawBufferPointer, random: any RandomSource
    ) throws {
        let nonce = UnsafeMutableRawBufferPointer(rebasing: sealed[..<Self.nonceLength])
        let text = UnsafeMutableRawBufferPointer(rebasing: sealed[Self.nonceLength..<(sealed.count - Self.tagLength)])
        let tag = UnsafeMutableRawBufferPointer(rebasing: sealed[(sealed.count - Self.tagLength)...])
        try random.fill(nonce)
        var written: Int32 = 0
        let target = text.assumingMemoryBound(to: UInt8.self).baseAddress
        guard EVP_EncryptInit_ex2(sealing, nil, nil, Self.bytes(UnsafeRawBufferPointer(nonce)), nil) == 1,
            EVP_EncryptUpdate(sealing, nil, &written, Self.bytes(authenticated), Int32(authenticated.count)) == 1,
            first.isEmpty
                || EVP_EncryptUpdate(sealing, target, &written, Self.bytes(first), Int32(first.count)) == 1,
            second.isEmpty
                || EVP_EncryptUpdate(
                    sealing, target.map { $0 + first.count }, &written, Self.bytes(second), Int32(second.count)) == 1,
            EVP_EncryptFinal_ex(sealing, target, &written) == 1,
            EVP_CIPHER_CTX_ctrl(sealing, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagLength), tag.baseAddress) == 1
        else { throw Self.failure("sealing") }
    }

    /// Decrypts in place and returns the part of `sealed` that is the text. Returns nil if the tag does not match; the
    /// contents of the buffer must not be used then.
    func open(_ sealed: UnsafeMutableRawBufferPointer, authenticating authenticated: UnsafeRawBufferPointer)
        -> UnsafeMutableRawBufferPointer?
    {
        let text = UnsafeMutableRawBufferPointer(rebasing: sealed[Self.nonceLength..<(sealed.count - Self.tagLength)])
        let tag = UnsafeMutableRawBufferPointer(rebasing: sealed[(sealed.count - Self.tagLength)...])
        var written: Int32 = 0
        let target = text.assumingMemoryBound(to: UInt8.self).baseAddress
        let isWhole =
            EVP_DecryptInit_ex2(opening, nil, nil, Self.bytes(UnsafeRawBufferPointer(sealed)), nil) == 1
            && EVP_DecryptUpdate(opening, nil, &written, Self.bytes(authenticated), Int32(authenticated.count)) == 1
            && (text.isEmpty || EVP_DecryptUpdate(opening, target, &written, target, Int32(text.count)) == 1)
            && EVP_CIPHER_CTX_ctrl(opening, EVP_CTRL_AEAD_SET_TAG, Int32(Self.tagLength), tag.baseAddress) == 1
            && EVP_DecryptFinal_ex(opening, target, &written) == 1
        return isWhole ? text : nil
    }

    private static func bytes(_ buffer: UnsafeRawBufferPointer) -> UnsafePointer<UInt8>? {
        buffer.assumingMemoryBound(to: UInt8.self).baseAddress
    }

    private static func failure(_ doing: String) -> StoreError { .openSSL(failedAt: doing) }
}

/// Idle ciphers, by generation. Holds at most `capacity` and discards the one that has been idle longest, because
/// contexts take memory.
final class EntryCipherPool: Sendable {
    private let idle = NIOLockedValueBox<[(generation: UInt64, cipher: EntryCipher)]>([])
    private static let capacity = 32
    let algorithms: Algorithms

    init(algorithms: Algorithms) { self.algorithms = algorithms }

    func acquire(for generation: UInt64, key: Secret) throws -> EntryCipher {
        let found = idle.withLockedValue { idle -> EntryCipher? in
            guard let index = idle.lastIndex(where: { $0.generation == generation }) else { return nil }
            return idle.remove(at: index).cipher
        }
        return try found ?? EntryCipher(key: key, algorithms: algorithms)
    }

    func release(_ cipher: EntryCipher, for generation: UInt64) {
        _ = idle.withLockedValue { idle -> EntryCipher? in
            let out = idle.count >= Self.capacity ? idle.removeFirst().cipher : nil
            idle.append((generation, cipher))
            return out
        }
    }

    /// Frees all ciphers of a generation, which wipes their keys. None may be in use.
    func removeAll(of generation: UInt64) {
        _ = idle.withLockedValue { idle in
            let out = idle.filter { $0.generation == generation }
            idle.removeAll { $0.generation == generation }
            return out.map(\.cipher)
        }
    }
}
