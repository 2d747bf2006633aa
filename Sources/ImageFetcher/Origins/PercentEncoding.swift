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
}

/// Encodes every byte but the unreserved ones.
func percentEncoded(_ bytes: some Sequence<UInt8>) -> String {
    var result: [UInt8] = []
    result.appendEncoded(bytes)
    return String(decoding: result, as: UTF8.self)
}

extension [UInt8] {
    /// The same, at the end of what there is.
    mutating func appendEncoded(_ bytes: some Sequence<UInt8>, keeping kept: CharacterClass = Characters.unreserved) {
        for byte in bytes {
            guard !kept.contains(byte) else {
                append(byte)
                continue
            }
            append(UInt8(ascii: "%"))
            append(Hexadecimal.upper[Int(byte >> 4)])
            append(Hexadecimal.upper[Int(byte & 15)])
        }
    }
}

/// Encodes what must be, decodes what need not be, and writes the digits in upper case (RFC 3986 section 6.2.2).
func normalizedEncoding(of text: String, keeping kept: CharacterClass) throws(WebURL.Refusal) -> String {
    var result: [UInt8] = []
    result.reserveCapacity(text.utf8.count)
    var bytes = text.utf8.makeIterator()
    while let byte = bytes.next() {
        guard byte == UInt8(ascii: "%") else {
            result.appendEncoded(CollectionOfOne(byte), keeping: kept)
            continue
        }
        guard let high = bytes.next().flatMap(Hexadecimal.value), let low = bytes.next().flatMap(Hexadecimal.value)
        else {
            throw .malformed("a percent sign in a URL is followed by two hexadecimal digits")
        }
        result.appendEncoded(CollectionOfOne(high << 4 | low))
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

enum Hexadecimal {
    static let upper = Array("0123456789ABCDEF".utf8)
    static let lower = Array("0123456789abcdef".utf8)

    /// Of a digit in either case; nil for anything else.
    static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        default: nil
        }
    }
}
