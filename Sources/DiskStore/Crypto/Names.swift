import CacheCore
import LinuxSupport

/// Pseudorandom bytes, as words of 64 bits, whose name on disk is their lower-case hexadecimal digits.
package struct HexName<let wordCount: Int>: Hashable, Sendable {
    private var words: InlineArray<wordCount, UInt64>

    init(_ bytes: UnsafeRawBufferPointer) {
        words = InlineArray { UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self)) }
    }

    /// Reads 16 digits for each word. Returns nil for any other input.
    init?(hex digits: some Collection<UInt8>) {
        guard digits.count == 16 * wordCount else { return nil }
        words = InlineArray(repeating: 0)
        for index in words.indices {
            guard let word = Hex.word(digits.dropFirst(16 * index).prefix(16)) else { return nil }
            words[index] = word
        }
    }

    func write(to buffer: UnsafeMutableRawBufferPointer) {
        for index in words.indices {
            buffer.storeBytes(of: words[index].bigEndian, toByteOffset: index * 8, as: UInt64.self)
        }
    }

    var bytes: [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 8 * wordCount) { buffer, count in
            write(to: UnsafeMutableRawBufferPointer(buffer))
            count = 8 * wordCount
        }
    }

    fileprivate func writeHex(to digits: UnsafeMutableBufferPointer<UInt8>, at position: Int = 0) {
        for index in words.indices { Hex.write(words[index], to: digits, at: position + 16 * index) }
    }

    var fileName: FileName { FileName(length: 16 * wordCount) { writeHex(to: $0) } }

    package static func == (left: Self, right: Self) -> Bool {
        left.words.indices.allSatisfy { left.words[$0] == right.words[$0] }
    }

    /// A part of the name. Different names may share it.
    var word: UInt64 { words[1] }

    package func hash(into hasher: inout Hasher) {
        // One word suffices, because all bits are pseudorandom.
        hasher.combine(word)
    }
}

/// The name of a user or profile on disk: an HMAC-SHA-256, which reveals nothing without its key.
package typealias HashedName = HexName<4>

/// Identifies one generation of a user's cache: 16 random bytes, never reused.
package typealias GenerationID = HexName<2>

extension HashedName {
    var bucket: UInt8 { UInt8(truncatingIfNeeded: words[0] >> 56) }
}

/// The owner of a login and its images, as named on disk.
struct HashedOwner: Hashable, Sendable {
    let uid: UInt32
    let user: HashedName

    /// A short key for dictionaries. Different owners may share it.
    var key: UInt64 { user.word }
}

/// The name of a generation's directory: `<user-name>.<generation>`.
struct GenerationName: Hashable, Sendable {
    let user: HashedName
    let generation: GenerationID

    var fileName: FileName {
        FileName(length: 97) { digits in
            user.writeHex(to: digits)
            digits[64] = UInt8(ascii: ".")
            generation.writeHex(to: digits, at: 65)
        }
    }
}

extension GenerationName {
    /// Returns nil for a name that the store does not use.
    init?(_ name: FileName) {
        let parts = name.bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 2, let user = HashedName(hex: parts[0]), let generation = GenerationID(hex: parts[1])
        else { return nil }
        self.init(user: user, generation: generation)
    }
}

/// The address of an entry within a generation: `<profile-name>.<code>`.
package struct EntryAddress: Hashable, Sendable {
    let profile: HashedName
    /// Size and style, from the image key.
    let code: UInt16
    var isUnsized: Bool { code == 0 }
}

extension EntryAddress {
    /// Returns nil for a name that the store does not use.
    init?(_ name: FileName) {
        let digits = name.bytes.dropFirst(65)
        guard name.bytes.count <= 70, let profile = HashedName(hex: name.bytes.prefix(64)),
            name.bytes.dropFirst(64).first == UInt8(ascii: "."),
            let code = UInt16(String(decoding: digits, as: UTF8.self)), digits.elementsEqual(String(code).utf8)
        else { return nil }
        self.init(profile: profile, code: code)
    }

    var bucket: UInt8 { profile.bucket }

    /// See ``CacheCore/ImageKey/canBeSource(_:of:)``.
    func canBeSource(of other: EntryAddress) -> Bool {
        profile == other.profile && ImageKey.canBeSource(code, of: other.code)
    }

    /// The path below the generation's directory: `<bucket>/<name>`.
    var path: FileName {
        FileName(length: 3 + nameLength) { path in
            BucketName.write(bucket, to: path)
            path[2] = UInt8(ascii: "/")
            writeName(to: UnsafeMutableBufferPointer(rebasing: path[3...]))
        }
    }

    var fileName: FileName { FileName(length: nameLength) { writeName(to: $0) } }

    private var nameLength: Int { 65 + (code < 10 ? 1 : code < 100 ? 2 : code < 1_000 ? 3 : code < 10_000 ? 4 : 5) }

    private func writeName(to name: UnsafeMutableBufferPointer<UInt8>) {
        profile.writeHex(to: name)
        name[64] = UInt8(ascii: ".")
        var rest = code
        for position in (65..<name.count).reversed() {
            name[position] = UInt8(ascii: "0") + UInt8(rest % 10)
            rest /= 10
        }
    }
}

enum BucketName {
    static func fileName(_ bucket: UInt8) -> FileName { FileName(length: 2) { write(bucket, to: $0) } }

    fileprivate static func write(_ bucket: UInt8, to digits: UnsafeMutableBufferPointer<UInt8>) {
        digits[0] = Hex.digit(bucket >> 4)
        digits[1] = Hex.digit(bucket & 15)
    }

    static func bucket(of name: FileName) -> UInt8? {
        guard name.bytes.count == 2, let word = Hex.word(name.bytes) else { return nil }
        return UInt8(word)
    }
}

/// Parses a name in every way, for the fuzzer.
package enum StoreFileNames {
    package static func read(_ bytes: UnsafeRawBufferPointer) {
        let name = FileName(bytes)
        if let address = EntryAddress(name) { precondition(address.fileName == name, "a name has two spellings") }
        if let generation = GenerationName(name) {
            precondition(generation.fileName == name, "a name has two spellings")
        }
        if let bucket = BucketName.bucket(of: name) {
            precondition(BucketName.fileName(bucket) == name, "a name has two spellings")
        }
        if let pending = PendingLogoutFile(fileName: name) {
            precondition(FileName(pending.name) == name, "a pending-logout file has another name")
            precondition(pending.name.hasPrefix("\(pending.uid)."), "a pending-logout file has another uid")
        }
    }
}
