/// A set of ASCII characters. Asked for each byte of each URL, so it is two words and not a table of hashes.
struct CharacterClass: Sendable {
    private var low: UInt64 = 0
    private var high: UInt64 = 0

    /// Bytes that are no ASCII are left out.
    init(_ characters: StaticString, and others: CharacterClass? = nil) {
        low = others?.low ?? 0
        high = others?.high ?? 0
        characters.withUTF8Buffer { characters in
            for character in characters {
                if character < 64 { low |= 1 << UInt64(character) }
                if character >= 64, character < 128 { high |= 1 << UInt64(character - 64) }
            }
        }
    }

    func contains(_ byte: UInt8) -> Bool {
        byte < 64 ? low >> UInt64(byte) & 1 == 1 : byte < 128 && high >> UInt64(byte - 64) & 1 == 1
    }
}

/// The character classes of RFC 3986.
enum Characters {
    /// Section 2.3: what means the same encoded or not, and is therefore left as it is.
    static let unreserved = CharacterClass("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    /// Section 3.3: `pchar` and the slash between segments.
    static let path = CharacterClass("!$&'()*+,;=:@/", and: unreserved)
    /// Section 3.4.
    static let query = CharacterClass("?", and: path)
    /// What names of hosts in the web are made of, in lower case.
    static let host = CharacterClass("abcdefghijklmnopqrstuvwxyz0123456789-._")
    /// RFC 6750 section 2.1: what a bearer token is made of.
    static let token = CharacterClass("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=")
}

/// Encodes every byte but the unreserved ones.
func percentEncoded(_ bytes: some Sequence<UInt8>) -> String {
    var result: [UInt8] = []
    for byte in bytes { append(byte, to: &result, keeping: Characters.unreserved) }
    return String(decoding: result, as: UTF8.self)
}

/// Encodes what must be, decodes what need not be, and writes the digits in upper case (RFC 3986 section 6.2.2).
func normalizedEncoding(of text: String, keeping kept: CharacterClass) throws(WebURL.Refusal) -> String {
    var result: [UInt8] = []
    result.reserveCapacity(text.utf8.count)
    var bytes = text.utf8.makeIterator()
    while let byte = bytes.next() {
        guard byte == UInt8(ascii: "%") else {
            append(byte, to: &result, keeping: kept)
            continue
        }
        guard let high = bytes.next().flatMap(hexadecimal), let low = bytes.next().flatMap(hexadecimal) else {
            throw .malformed("a percent sign in a URL is followed by two hexadecimal digits")
        }
        append(high << 4 | low, to: &result, keeping: Characters.unreserved)
    }
    return String(decoding: result, as: UTF8.self)
}

private func hasSegmentWithLeadingDot(_ path: String) -> Bool {
    zip(path.utf8, path.utf8.dropFirst()).contains { $0 == UInt8(ascii: "/") && $1 == UInt8(ascii: ".") }
}

/// RFC 3986 section 5.2.4, for a path that begins with a slash; an empty one becomes a slash.
func removingDotSegments(_ path: String) -> String {
    // Most paths have none, and are what they are.
    guard path.isEmpty || hasSegmentWithLeadingDot(path) else { return path }
    var kept: [Substring] = []
    let segments = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
    for (index, segment) in zip(segments.indices, segments) {
        let isLast = index == segments.endIndex - 1
        switch segment {
        case ".":
            if isLast { kept.append("") }
        case "..":
            _ = kept.popLast()
            if isLast { kept.append("") }
        default:
            kept.append(segment)
        }
    }
    return "/" + kept.joined(separator: "/")
}

private func append(_ byte: UInt8, to result: inout [UInt8], keeping kept: CharacterClass) {
    if kept.contains(byte) {
        result.append(byte)
    } else {
        let digits = Array("0123456789ABCDEF".utf8)
        result += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
    }
}

private func hexadecimal(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    default: nil
    }
}
