import LinuxSupport

/// What a text consists of, its escapes undone. Bytes beyond ASCII and UTF-16 code units come one by one.
struct JSONCharacters {
    private let bytes: UnsafeRawBufferPointer
    private var offset: Int
    private let end: Int
    /// Whether the code unit returned last was written as an escape.
    private(set) var isEscape = false

    /// - Parameter range: of a text that has been read, with its quotes.
    init(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) {
        self.bytes = bytes
        offset = range.lowerBound + 1
        end = range.upperBound - 1
    }

    mutating func next() -> UInt16? {
        guard offset < end else { return nil }
        let byte = bytes[offset]
        isEscape = byte == "\\"
        guard isEscape else {
            offset += 1
            return UInt16(byte)
        }
        let escape = bytes[offset + 1]
        offset += 2
        switch escape {
        case "b": return 0x08
        case "f": return 0x0C
        case "n": return 0x0A
        case "r": return 0x0D
        case "t": return 0x09
        case "u":
            defer { offset += 4 }
            return bytes[offset..<offset + 4].reduce(0) { $0 << 4 | UInt16(Hex.value(of: $1) ?? 0) }
        default: return UInt16(escape)
        }
    }
}

/// Goes through a JSON text once, from its first byte to its last.
struct JSONCursor {
    struct Malformed: Error {}

    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
        // A byte order mark, which no sender should send, and a reader may pass over (section 8.1).
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { offset = 3 }
    }

    /// Starts at a value within the text.
    init(_ bytes: UnsafeRawBufferPointer, from offset: Int) { (self.bytes, self.offset) = (bytes, offset) }

    var isAtEnd: Bool { offset == bytes.count }
    private var next: UInt8? { offset < bytes.count ? bytes[offset] : nil }

    // MARK: What stands between values

    /// Takes a character behind any number of blanks; false where another is there.
    mutating func take(_ character: Unicode.Scalar) -> Bool {
        skipBlanks()
        return takeByte { $0 == character }
    }

    mutating func expect(_ character: Unicode.Scalar) throws(Malformed) {
        guard take(character) else { throw Malformed() }
    }

    mutating func expectEnd() throws(Malformed) {
        skipBlanks()
        guard isAtEnd else { throw Malformed() }
    }

    /// The name of a member and the colon behind it. Returns where the name is, with its quotes.
    mutating func name() throws(Malformed) -> Range<Int> {
        skipBlanks()
        let start = offset
        try text()
        let end = offset
        try expect(":")
        return start..<end
    }

    private mutating func skipBlanks() {
        while takeByte({ $0 == " " || $0 == "\n" || $0 == "\r" || $0 == "\t" }) {}
    }

    private mutating func takeByte(_ isWanted: (UInt8) -> Bool) -> Bool {
        guard let next, isWanted(next) else { return false }
        offset += 1
        return true
    }

    // MARK: Values

    /// A value of whatever kind, with all that is in it. Returns where it is.
    mutating func value() throws(Malformed) -> Range<Int> {
        skipBlanks()
        let start = offset
        // The arrays and objects that have begun and not ended, the innermost last: whether each is an object.
        var open: [Bool] = []
        while true {
            let isArray = take("[")
            if isArray || take("{") {
                guard open.count < JSONObject.deepest else { throw Malformed() }
                if !take(isArray ? "]" : "}") {
                    open.append(!isArray)
                    if !isArray { _ = try name() }
                    continue
                }
            } else {
                try scalar()
            }
            // A value has ended; and with it all of which it was the last.
            while let isObject = open.last, !take(",") {
                try expect(isObject ? "}" : "]")
                open.removeLast()
            }
            guard let isObject = open.last else { return start..<offset }
            if isObject { _ = try name() }
        }
    }

    private mutating func scalar() throws(Malformed) {
        switch next {
        case .some("\""): try text()
        case .some("t"): try word("true")
        case .some("f"): try word("false")
        case .some("n"): try word("null")
        default: try number()
        }
    }

    private mutating func word(_ word: String) throws(Malformed) {
        for expected in word.utf8 where !takeByte({ $0 == expected }) { throw Malformed() }
    }

    private mutating func text() throws(Malformed) {
        guard takeByte({ $0 == "\"" }) else { throw Malformed() }
        while !takeByte({ $0 == "\"" }) {
            if takeByte({ $0 == "\\" }) {
                try escape()
            } else if !takeByte({ $0 >= 0x20 }) {
                throw Malformed()
            }
        }
    }

    private mutating func escape() throws(Malformed) {
        if takeByte({ $0 == "u" }) {
            for _ in 0..<4 where !takeByte({ Hex.value(of: $0) != nil }) { throw Malformed() }
        } else if !takeByte({ byte in "\"\\/bfnrt".utf8.contains(byte) }) {
            throw Malformed()
        }
    }

    /// Section 6.
    mutating func number() throws(Malformed) {
        _ = takeByte { $0 == "-" }
        if !takeByte({ $0 == "0" }) { try digits() }
        if takeByte({ $0 == "." }) { try digits() }
        if takeByte({ $0 == "e" || $0 == "E" }) {
            _ = takeByte { $0 == "+" || $0 == "-" }
            try digits()
        }
    }

    private mutating func digits() throws(Malformed) {
        guard takeByte(\.isDigit) else { throw Malformed() }
        while takeByte(\.isDigit) {}
    }
}

extension UInt8 {
    static func == (byte: UInt8, character: Unicode.Scalar) -> Bool { UInt32(byte) == character.value }
    static func != (byte: UInt8, character: Unicode.Scalar) -> Bool { !(byte == character) }
    static func ~= (character: Unicode.Scalar, byte: UInt8) -> Bool { byte == character }

    var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }
}
