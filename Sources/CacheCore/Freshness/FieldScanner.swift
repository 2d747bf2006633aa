/// Reads the value of a header field from left to right, in the words that RFC 9110 section 5.6 builds values from.
///
/// A value. What does not fit is left where it is, and says so with nil or false; nothing here fails otherwise.
struct FieldScanner {
    private var rest: ArraySlice<UInt8>
    /// Whether a quote was met that nothing closes. Then nothing closes a later one either: all that follow stand
    /// behind a backslash. To look for the end of each would take a time that grows with the square of their number.
    private var isUnclosed = false

    init(_ text: String) {
        rest = Array(text.utf8)[...]
    }

    var isAtEnd: Bool { rest.isEmpty }
    /// Whether an element of a list ends here.
    var isAtEndOfElement: Bool { rest.isEmpty || rest.first == UInt8(ascii: ",") }

    mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard rest.first == UInt8(ascii: character) else { return false }
        rest.removeFirst()
        return true
    }

    /// Optional white space (section 5.6.3).
    mutating func skipBlanks() {
        rest = rest.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    }

    /// A token (section 5.6.2) in lower case, since those that matter here are names in any case, or numbers.
    mutating func token() -> String? {
        run { Self.isDigit($0) || Self.isLetter($0) || Self.marks.contains($0) }
    }

    /// Letters of ASCII, in lower case.
    mutating func letters() -> String? {
        run { Self.isLetter($0) }
    }

    /// Exactly so many digits, and no more after them.
    mutating func digits(_ count: Int) -> Int64? {
        let run = rest.prefix { Self.isDigit($0) }
        guard run.count == count else { return nil }
        rest = rest.dropFirst(count)
        return run.reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
    }

    /// A quoted string (section 5.6.4) without its quotes and with what was escaped as itself.
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

    /// Goes to the end of an element that cannot be read: a comma within quotes does not end it, but one behind a quote
    /// that is never closed does. What is forbidden there is obeyed.
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

/// A number of seconds as fields write it (RFC 9111 section 1.2.2).
public enum DeltaSeconds {
    /// What is taken for a number too large to hold.
    public static let most: Int64 = 1 << 31

    /// Nil for anything but digits.
    public static func parse(_ text: String) -> Int64? {
        guard !text.isEmpty, text.utf8.allSatisfy(FieldScanner.isDigit) else { return nil }
        return min(Int64(text) ?? most, most)
    }
}
