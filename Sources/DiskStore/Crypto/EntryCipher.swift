import COpenSSL
import CacheCore
import LinuxSupport
import NIOConcurrencyHelpers

/// Seals, opens and names under one key, AES-256-GCM (NIST SP 800-38D) and HMAC-SHA-256, with OpenSSL's contexts kept
/// ready, since setting one up costs as much as sealing a small image.
///
/// Used by one operation at a time: it is taken from ``EntryCipherPool`` under its lock and given back after. That is why
/// it may travel between threads. Its contexts hold the key; OpenSSL wipes them when they are freed.
final class EntryCipher: @unchecked Sendable {
    /// Bytes of a nonce: 96 bits, drawn afresh for every seal.
    static let nonceLength = 12
    static let tagLength = 16
    /// Bytes that a box has beside the text.
    static let overhead = nonceLength + tagLength

    private let sealing: OpaquePointer
    private let opening: OpaquePointer
    /// Under a key derived from the cipher's, so that no key serves two algorithms on data that others choose.
    let names: Mac

    /// - Parameter key: 32 bytes.
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

    /// Where the image of an image key lies.
    func address(of imageKey: ImageKey) throws -> EntryAddress {
        EntryAddress(profile: try names.profileName(of: imageKey.profile), code: imageKey.code)
    }

    /// Seals `first` and `second` as one text into `box`: a nonce that is drawn here, the text of both lengths
    /// together, and the tag. `bound` must be the same when it is opened.
    func seal(
        _ first: UnsafeRawBufferPointer, _ second: UnsafeRawBufferPointer, bound: UnsafeRawBufferPointer,
        into box: UnsafeMutableRawBufferPointer, random: any RandomSource
    ) throws {
        let nonce = UnsafeMutableRawBufferPointer(rebasing: box[..<Self.nonceLength])
        let text = UnsafeMutableRawBufferPointer(rebasing: box[Self.nonceLength..<(box.count - Self.tagLength)])
        let tag = UnsafeMutableRawBufferPointer(rebasing: box[(box.count - Self.tagLength)...])
        try random.fill(nonce)
        var written: Int32 = 0
        let target = text.assumingMemoryBound(to: UInt8.self).baseAddress
        guard EVP_EncryptInit_ex2(sealing, nil, nil, Self.bytes(UnsafeRawBufferPointer(nonce)), nil) == 1,
            EVP_EncryptUpdate(sealing, nil, &written, Self.bytes(bound), Int32(bound.count)) == 1,
            first.isEmpty
                || EVP_EncryptUpdate(sealing, target, &written, Self.bytes(first), Int32(first.count)) == 1,
            second.isEmpty
                || EVP_EncryptUpdate(
                    sealing, target.map { $0 + first.count }, &written, Self.bytes(second), Int32(second.count)) == 1,
            EVP_EncryptFinal_ex(sealing, target, &written) == 1,
            EVP_CIPHER_CTX_ctrl(sealing, EVP_CTRL_AEAD_GET_TAG, Int32(Self.tagLength), tag.baseAddress) == 1
        else { throw Self.failure("sealing") }
    }

    /// Opens a box where it lies, and says where in it the text is. Nil when the tag does not match: then the text is
    /// worth nothing and must not be looked at.
    func open(_ box: UnsafeMutableRawBufferPointer, bound: UnsafeRawBufferPointer) -> UnsafeMutableRawBufferPointer? {
        let text = UnsafeMutableRawBufferPointer(rebasing: box[Self.nonceLength..<(box.count - Self.tagLength)])
        let tag = UnsafeMutableRawBufferPointer(rebasing: box[(box.count - Self.tagLength)...])
        var written: Int32 = 0
        let target = text.assumingMemoryBound(to: UInt8.self).baseAddress
        let isWhole =
            EVP_DecryptInit_ex2(opening, nil, nil, Self.bytes(UnsafeRawBufferPointer(box)), nil) == 1
            && EVP_DecryptUpdate(opening, nil, &written, Self.bytes(bound), Int32(bound.count)) == 1
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

/// Crypters that are not in use, by the generation whose key they hold; at most `capacity`, longest idle first out, so
/// that thousands of users cost no memory for contexts they seldom need.
final class EntryCipherPool: Sendable {
    private let idle = NIOLockedValueBox<[(generation: UInt64, cipher: EntryCipher)]>([])
    private static let capacity = 32
    let algorithms: Algorithms

    init(algorithms: Algorithms) { self.algorithms = algorithms }

    /// One that holds `key`, idle or new.
    func take(for generation: UInt64, key: Secret) throws -> EntryCipher {
        let found = idle.withLockedValue { idle -> EntryCipher? in
            guard let index = idle.lastIndex(where: { $0.generation == generation }) else { return nil }
            return idle.remove(at: index).cipher
        }
        return try found ?? EntryCipher(key: key, algorithms: algorithms)
    }

    func giveBack(_ cipher: EntryCipher, for generation: UInt64) {
        _ = idle.withLockedValue { idle -> EntryCipher? in
            let out = idle.count >= Self.capacity ? idle.removeFirst().cipher : nil
            idle.append((generation, cipher))
            return out
        }
    }

    /// Frees, and thereby wipes, all that hold the key of a generation. None of them is in use any more.
    func removeAll(of generation: UInt64) {
        _ = idle.withLockedValue { idle in
            let out = idle.filter { $0.generation == generation }
            idle.removeAll { $0.generation == generation }
            return out.map(\.cipher)
        }
    }
}
