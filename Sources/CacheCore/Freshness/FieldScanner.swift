/// Reads the value of a header field from left to right, in the tokens of RFC 9110 section 5.6.
///
/// A value. A method that finds no match returns nil or false and consumes nothing.
struct FieldScanner {
    private var rest: ArraySlice<UInt8>
    /// Whether an unclosed quote was found. Every later quote is then escaped; to search for each end would take
    /// quadratic time.
    private var isUnclosed = false

    init(_ text: String) {
        rest = Array(text.utf8)[...]
    }

    var isAtEnd: Bool { rest.isEmpty }
    /// Whether an element of a list ends here.
    var isAtEndOfElement: Bool { rest.isEmpty || rest.first == UInt8(ascii: ",") }

    /// Skips the character if it is next.
    @discardableResult
    mutating func skip(_ character: Unicode.Scalar) -> Bool {
        guard rest.first == UInt8(ascii: character) else { return false }
        rest.removeFirst()
        return true
    }

    /// Optional white space (section 5.6.3).
    mutating func skipBlanks() {
        rest = rest.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    }

    /// A token (section 5.6.2) in lower case: names are case-insensitive.
    mutating func token() -> String? {
        run { Self.isDigit($0) || Self.isLetter($0) || Self.marks.contains($0) }
    }

    mutating func letters() -> String? {
        run { Self.isLetter($0) }
    }

    /// Exactly that many digits, not followed by another.
    mutating func digits(_ count: Int) -> Int64? {
        let run = rest.prefix { Self.isDigit($0) }
        guard run.count == count else { return nil }
        rest = rest.dropFirst(count)
        return run.reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
    }

    /// A quoted string (section 5.6.4), without quotes and escapes.
    mutating func quotedString() -> String? {
        guard !isUnclosed, rest.first == UInt8(ascii: "\"") else { return nil }
        var text: [UInt8] = []
        var bytes = rest.dropFirst()
        while let byte = bytes.popFirst() {
            if byte == UInt8(ascii: "\"") {
                rest = bytes
                return String(decoding: text, as: UTF8.self)
            }
            guard byte == UInt8(ascii: "\\") else {
                text.append(byte)
                continue
            }
            guard let escaped = bytes.popFirst() else { break }
            text.append(escaped)
        }
        isUnclosed = true
        return nil
    }

    /// Skips to the end of a malformed list element. A comma after an unclosed quote ends it, so that the directives
    /// that follow are still read.
    mutating func skipElement() {
        while !isAtEndOfElement {
            if quotedString() == nil { rest.removeFirst() }
        }
    }

    private mutating func run(_ isPart: (UInt8) -> Bool) -> String? {
        let run = rest.prefix(while: isPart)
        guard !run.isEmpty else { return nil }
        rest = rest.dropFirst(run.count)
        return String(decoding: run, as: UTF8.self).lowercased()
    }

    fileprivate static func isDigit(_ byte: UInt8) -> Bool { UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte }
    private static func isLetter(_ byte: UInt8) -> Bool { UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte | 0x20 }
    private static let marks = Set("!#$%&'*+-.^_`|~".utf8)
}

/// Delta-seconds of header fields (RFC 9111 section 1.2.2).
public enum DeltaSeconds {
    /// The value for numbers that are too large.
    public static let most: Int64 = 1 << 31

    /// Nil for anything except digits.
    public static func parse(_ text: String) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy(FieldScanner.isDigit) else { return nil }
        return min(Int64(text) ?? most, most)
    }
}
