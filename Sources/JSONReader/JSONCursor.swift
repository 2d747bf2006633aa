import LinuxSupport

/// The characters of a JSON string with escapes decoded: bytes, or UTF-16 code units of escapes.
struct JSONCharacters {
    private let bytes: UnsafeRawBufferPointer
    private var offset: Int
    private let end: Int
    /// Whether the last code unit was written as an escape.
    private(set) var isEscape = false

    /// - Parameter range: the position of a valid string including its quotes.
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

/// Reads a JSON text sequentially.
struct JSONCursor {
    struct Malformed: Error {}

    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
        // Skip a byte order mark (RFC 8259, section 8.1).
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { offset = 3 }
    }

    init(_ bytes: UnsafeRawBufferPointer, from offset: Int) { (self.bytes, self.offset) = (bytes, offset) }

    var isAtEnd: Bool { offset == bytes.count }
    private var next: UInt8? { offset < bytes.count ? bytes[offset] : nil }

    /// Skips blanks and consumes a character. Returns false if another one follows.
    mutating func consume(_ character: Unicode.Scalar) -> Bool {
        skipBlanks()
        return consumeByte { $0 == character }
    }

    mutating func expect(_ character: Unicode.Scalar) throws(Malformed) {
        guard consume(character) else { throw Malformed() }
    }

    mutating func expectEnd() throws(Malformed) {
        skipBlanks()
        guard isAtEnd else { throw Malformed() }
    }

    /// Reads a member's name and the colon. Returns the position of the name including its quotes.
    mutating func name() throws(Malformed) -> Range<Int> {
        skipBlanks()
        let start = offset
        try text()
        let end = offset
        try expect(":")
        return start..<end
    }

    private mutating func skipBlanks() {
        while consumeByte({ $0 == " " || $0 == "\n" || $0 == "\r" || $0 == "\t" }) {}
    }

    private mutating func consumeByte(_ isWanted: (UInt8) -> Bool) -> Bool {
        guard let next, isWanted(next) else { return false }
        offset += 1
        return true
    }

    /// Skips a value of any kind and returns its position.
    mutating func value() throws(Malformed) -> Range<Int> {
        skipBlanks()
        let start = offset
        // Open arrays and objects, the innermost last: true for an object.
        var open: [Bool] = []
        while true {
            let isArray = consume("[")
            if isArray || consume("{") {
                guard open.count < JSONObject.deepest else { throw Malformed() }
                if !consume(isArray ? "]" : "}") {
                    open.append(!isArray)
                    if !isArray { _ = try name() }
                    continue
                }
            } else {
                try scalar()
            }
            // A value has ended, and so have those that it was the last part of.
            while let isObject = open.last, !consume(",") {
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
        for expected in word.utf8 where !consumeByte({ $0 == expected }) { throw Malformed() }
    }

    private mutating func text() throws(Malformed) {
        guard consumeByte({ $0 == "\"" }) else { throw Malformed() }
        while !consumeByte({ $0 == "\"" }) {
            if consumeByte({ $0 == "\\" }) {
                try escape()
            } else if !consumeByte({ $0 >= 0x20 }) {
                throw Malformed()
            }
        }
    }

    private mutating func escape() throws(Malformed) {
        if consumeByte({ $0 == "u" }) {
            for _ in 0..<4 where !consumeByte({ Hex.value(of: $0) != nil }) { throw Malformed() }
        } else if !consumeByte({ byte in "\"\\/bfnrt".utf8.contains(byte) }) {
            throw Malformed()
        }
    }

    /// RFC 8259, section 6.
    mutating func number() throws(Malformed) {
        _ = consumeByte { $0 == "-" }
        if !consumeByte({ $0 == "0" }) { try digits() }
        if consumeByte({ $0 == "." }) { try digits() }
        if consumeByte({ $0 == "e" || $0 == "E" }) {
            _ = consumeByte { $0 == "+" || $0 == "-" }
            try digits()
        }
    }

    private mutating func digits() throws(Malformed) {
        guard consumeByte(\.isDigit) else { throw Malformed() }
        while consumeByte(\.isDigit) {}
    }
}

extension UInt8 {
    static func == (byte: UInt8, character: Unicode.Scalar) -> Bool { UInt32(byte) == character.value }
    static func != (byte: UInt8, character: Unicode.Scalar) -> Bool { !(byte == character) }
    static func ~= (character: Unicode.Scalar, byte: UInt8) -> Bool { byte == character }

    var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }
}
