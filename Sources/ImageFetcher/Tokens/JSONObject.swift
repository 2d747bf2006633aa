import LinuxSupport

/// Some members of a JSON object (RFC 8259): found where they lie and decoded when they are asked for.
///
/// For an answer that anybody may have written and that holds secrets. Nothing is copied but what is lent, and that is
/// wiped. Nesting is followed without recursion. What stands in other members is skipped by its structure alone.
struct JSONObject {
    /// Levels of arrays and objects within the object; more are refused.
    static let deepest = 64

    private let bytes: UnsafeRawBufferPointer
    /// Where the values are; of texts with their quotes.
    private var values: [String: Range<Int>] = [:]

    /// - Parameters:
    ///   - bytes: have to stay for as long as this does.
    ///   - names: the members to find; one that is null is as if it were not there.
    /// - Returns: nil for what is no JSON object, and for one that has such a member twice.
    init?(_ bytes: UnsafeRawBufferPointer, members names: Set<String>) {
        self.bytes = bytes
        var cursor = JSONCursor(bytes)
        do throws(JSONCursor.Malformed) {
            try cursor.expect("{")
            if !cursor.take("}") {
                repeat {
                    let name = try cursor.name()
                    let value = try cursor.value()
                    guard let known = names.first(where: { isName(name, $0) }), bytes[value.lowerBound] != "n" else {
                        continue
                    }
                    guard values.updateValue(value, forKey: known) == nil else { return nil }
                } while cursor.take(",")
                try cursor.expect("}")
            }
            try cursor.expectEnd()
        } catch {
            return nil
        }
    }

    func has(_ name: String) -> Bool { values[name] != nil }
    func hasText(_ name: String) -> Bool { values[name].map { bytes[$0.lowerBound] == "\"" } ?? false }

    /// Lends a member's text, in memory that is wiped afterwards. Nil where it is no text of ASCII characters.
    func withText<Result>(_ name: String, _ body: (UnsafeRawBufferPointer) -> Result?) -> Result? {
        guard let value = values[name], bytes[value.lowerBound] == "\"" else { return nil }
        // No longer decoded than encoded: with all the room at once nothing is moved, and one copy is to be wiped.
        var text: [UInt8] = []
        text.reserveCapacity(value.count)
        defer { text.wipe() }
        var characters = JSONCharacters(bytes, value)
        while let character = characters.next() {
            guard let ascii = UInt8(exactly: character), ascii < 0x80 else { return nil }
            text.append(ascii)
        }
        return text.withUnsafeBytes(body)
    }

    /// A member that is a number, or a text that holds one; may be infinite. Nil where it is neither.
    func number(_ name: String) -> Double? {
        guard var range = values[name] else { return nil }
        if bytes[range.lowerBound] == "\"" { range = range.lowerBound + 1..<range.upperBound - 1 }
        let digits = UnsafeRawBufferPointer(rebasing: bytes[range])
        var cursor = JSONCursor(digits)
        do throws(JSONCursor.Malformed) {
            try cursor.number()
        } catch {
            return nil
        }
        return cursor.isAtEnd ? Double(String(decoding: digits, as: UTF8.self)) : nil
    }

    private func isName(_ range: Range<Int>, _ name: String) -> Bool {
        var characters = JSONCharacters(bytes, range)
        for expected in name.utf8 where characters.next() != UInt16(expected) { return false }
        return characters.next() == nil
    }
}

/// What a text consists of, its escapes undone. Bytes beyond ASCII and UTF-16 code units come one by one.
private struct JSONCharacters {
    private let bytes: UnsafeRawBufferPointer
    private var offset: Int
    private let end: Int

    /// - Parameter range: of a text that has been read, with its quotes.
    init(_ bytes: UnsafeRawBufferPointer, _ range: Range<Int>) {
        self.bytes = bytes
        offset = range.lowerBound + 1
        end = range.upperBound - 1
    }

    mutating func next() -> UInt16? {
        guard offset < end else { return nil }
        let byte = bytes[offset]
        guard byte == "\\" else {
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
private struct JSONCursor {
    struct Malformed: Error {}

    private let bytes: UnsafeRawBufferPointer
    private var offset = 0

    init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
        // A byte order mark, which no sender should send, and a reader may pass over (section 8.1).
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { offset = 3 }
    }

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
    fileprivate static func == (byte: UInt8, character: Unicode.Scalar) -> Bool { UInt32(byte) == character.value }
    fileprivate static func != (byte: UInt8, character: Unicode.Scalar) -> Bool { !(byte == character) }
    fileprivate static func ~= (character: Unicode.Scalar, byte: UInt8) -> Bool { byte == character }

    fileprivate var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }
}
