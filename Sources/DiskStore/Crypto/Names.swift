import LinuxSupport

/// The name that a user or a profile has on disk: an HMAC-SHA-256, 32 bytes, written as 64 hexadecimal digits. It says
/// nothing without the key it was made under.
package struct SealedName: Hashable, Sendable {
    private let words: (UInt64, UInt64, UInt64, UInt64)

    /// Takes the first 32 bytes of `bytes`, which must hold as many.
    init(_ bytes: UnsafeRawBufferPointer) {
        func word(_ index: Int) -> UInt64 {
            UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self))
        }
        words = (word(0), word(1), word(2), word(3))
    }

    /// From 64 lower-case hexadecimal digits; nil for anything else.
    init?(hex digits: some Collection<UInt8>) {
        guard digits.count == 64 else { return nil }
        var words: [UInt64] = []
        for part in 0..<4 {
            let start = digits.index(digits.startIndex, offsetBy: part * 16)
            guard let word = Hex.word(digits[start...].prefix(16)) else { return nil }
            words.append(word)
        }
        self.words = (words[0], words[1], words[2], words[3])
    }

    /// The bucket that the name belongs to.
    var bucket: UInt8 { UInt8(truncatingIfNeeded: words.0 >> 56) }

    /// Writes the 32 bytes.
    func write(to buffer: UnsafeMutableRawBufferPointer) {
        buffer.storeBytes(of: words.0.bigEndian, as: UInt64.self)
        buffer.storeBytes(of: words.1.bigEndian, toByteOffset: 8, as: UInt64.self)
        buffer.storeBytes(of: words.2.bigEndian, toByteOffset: 16, as: UInt64.self)
        buffer.storeBytes(of: words.3.bigEndian, toByteOffset: 24, as: UInt64.self)
    }

    var bytes: [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 32) { buffer, count in
            write(to: UnsafeMutableRawBufferPointer(buffer))
            count = 32
        }
    }

    /// Writes the 64 digits.
    fileprivate func writeHex(to digits: UnsafeMutableBufferPointer<UInt8>) {
        Hex.write(words.0, to: digits, at: 0)
        Hex.write(words.1, to: digits, at: 16)
        Hex.write(words.2, to: digits, at: 32)
        Hex.write(words.3, to: digits, at: 48)
    }

    var fileName: FileName { FileName(length: 64) { writeHex(to: $0) } }

    package static func == (left: Self, right: Self) -> Bool { left.words == right.words }

    package func hash(into hasher: inout Hasher) {
        // An HMAC: any part of it is as good as the whole.
        hasher.combine(words.1)
    }
}

/// Whom a log-in and its images belong to, as the disk knows them.
struct SealedOwner: Hashable, Sendable {
    let uid: UInt32
    let user: SealedName
}

/// What tells one life of a user's cache from the next: 16 random bytes, never used twice.
package struct GenerationID: Hashable, Sendable {
    private let high: UInt64
    private let low: UInt64

    /// Takes the first 16 bytes of `bytes`, which must hold as many.
    init(_ bytes: UnsafeRawBufferPointer) {
        high = UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
        low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }

    init?(hex digits: some Collection<UInt8>) {
        guard digits.count == 32, let high = Hex.word(digits.prefix(16)), let low = Hex.word(digits.suffix(16)) else {
            return nil
        }
        (self.high, self.low) = (high, low)
    }

    var bytes: [UInt8] {
        [high, low].flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (56 - 8 * UInt64($0))) } }
    }

    fileprivate func writeHex(to digits: UnsafeMutableBufferPointer<UInt8>, at position: Int) {
        Hex.write(high, to: digits, at: position)
        Hex.write(low, to: digits, at: position + 16)
    }

    /// 32 digits: a name for anything that needs a new one.
    var fileName: FileName { FileName(length: 32) { writeHex(to: $0, at: 0) } }
}

/// The name of a generation's directory: `<user-name>.<generation>`.
struct GenerationName: Hashable, Sendable {
    let user: SealedName
    let generation: GenerationID

    init(user: SealedName, generation: GenerationID) {
        self.user = user
        self.generation = generation
    }

    /// nil for a name that the store did not give.
    init?(_ name: FileName) {
        let parts = name.bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 2, let user = SealedName(hex: parts[0]), let generation = GenerationID(hex: parts[1])
        else {
            return nil
        }
        self.init(user: user, generation: generation)
    }

    var fileName: FileName {
        FileName(length: 97) { digits in
            user.writeHex(to: digits)
            digits[64] = UInt8(ascii: ".")
            generation.writeHex(to: digits, at: 65)
        }
    }
}

/// The address of an image within a generation: `<profile-name>.<size>`.
package struct EntryAddress: Hashable, Sendable {
    let profile: SealedName
    /// Pixels; 0 where none were named.
    let size: UInt16

    init(profile: SealedName, size: UInt16) {
        self.profile = profile
        self.size = size
    }

    /// nil for a name that the store did not give.
    init?(_ name: FileName) {
        let digits = name.bytes.dropFirst(65)
        guard name.bytes.count <= 70, let profile = SealedName(hex: name.bytes.prefix(64)),
            name.bytes.dropFirst(64).first == UInt8(ascii: "."),
            let size = UInt16(String(decoding: digits, as: UTF8.self)), digits.elementsEqual(String(size).utf8)
        else { return nil }
        self.init(profile: profile, size: size)
    }

    var bucket: UInt8 { profile.bucket }

    /// Where the entry lies in its generation's directory: bucket and name, with a slash between them.
    var path: FileName {
        FileName(length: 3 + nameLength) { path in
            BucketName.write(bucket, to: path)
            path[2] = UInt8(ascii: "/")
            writeName(to: UnsafeMutableBufferPointer(rebasing: path[3...]))
        }
    }

    var fileName: FileName { FileName(length: nameLength) { writeName(to: $0) } }

    /// 64 digits, a dot, and the size in decimal.
    private var nameLength: Int {
        var length = 66
        var rest = size / 10
        while rest > 0 {
            rest /= 10
            length += 1
        }
        return length
    }

    private func writeName(to name: UnsafeMutableBufferPointer<UInt8>) {
        profile.writeHex(to: name)
        name[64] = UInt8(ascii: ".")
        var rest = size
        for position in (65..<name.count).reversed() {
            name[position] = UInt8(ascii: "0") + UInt8(rest % 10)
            rest /= 10
        }
    }
}

/// The name of a bucket: two hexadecimal digits.
enum BucketName {
    static func fileName(_ bucket: UInt8) -> FileName {
        FileName(length: 2) { write(bucket, to: $0) }
    }

    fileprivate static func write(_ bucket: UInt8, to digits: UnsafeMutableBufferPointer<UInt8>) {
        digits[0] = Hex.digit(bucket >> 4)
        digits[1] = Hex.digit(bucket & 15)
    }

    /// nil for a name that the store did not give.
    static func bucket(of name: FileName) -> UInt8? {
        guard name.bytes.count == 2, let word = Hex.word(name.bytes) else { return nil }
        return UInt8(word)
    }
}

/// All readers of names at once, for the fuzzer.
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
    }
}
