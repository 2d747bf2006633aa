import CacheCore
import LinuxSupport

/// A set of ASCII characters, as two words: it is used for each byte of each URL.
package struct CharacterClass: Sendable {
    private var low: UInt64 = 0
    private var high: UInt64 = 0

    /// Non-ASCII bytes are ignored.
    package init(_ characters: StaticString, and others: CharacterClass? = nil) {
        low = others?.low ?? 0
        high = others?.high ?? 0
        characters.withUTF8Buffer { characters in
            for character in characters {
                if character < 64 { low |= 1 << UInt64(character) }
                if character >= 64, character < 128 { high |= 1 << UInt64(character - 64) }
            }
        }
    }

    package func contains(_ byte: UInt8) -> Bool {
        byte < 64 ? low >> UInt64(byte) & 1 == 1 : byte < 128 && high >> UInt64(byte - 64) & 1 == 1
    }
}

/// The character classes of RFC 3986.
package enum Characters {
    /// Section 2.3: characters that are never encoded.
    package static let unreserved = CharacterClass("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    /// Section 3.3: `pchar` and the slash between segments.
    static let path = CharacterClass("!$&'()*+,;=:@/", and: unreserved)
    /// Section 3.4.
    static let query = CharacterClass("?", and: path)
    /// The characters of host names, in lower case.
    static let host = CharacterClass("abcdefghijklmnopqrstuvwxyz0123456789-._")
}

/// RFC 3986 section 2.1 recommends upper case.
private func upperCaseDigit(_ value: UInt8) -> UInt8 { value < 10 ? Hex.digit(value) : Hex.digit(value) & ~0x20 }

extension [UInt8] {
    /// Appends bytes, percent-encoding all but those that are kept.
    package mutating func appendEncoded(
        _ bytes: some Sequence<UInt8>, keeping kept: CharacterClass = Characters.unreserved
    ) {
        for byte in bytes {
            guard !kept.contains(byte) else {
                append(byte)
                continue
            }
            append(UInt8(ascii: "%"))
            append(upperCaseDigit(byte >> 4))
            append(upperCaseDigit(byte & 15))
        }
    }
}

/// Normalizes percent-encoding: only what must be encoded, with upper-case digits (RFC 3986 section 6.2.2).
func normalizedEncoding(of text: String, keeping kept: CharacterClass) throws(CacheFailure) -> String {
    var result: [UInt8] = []
    result.reserveCapacity(text.utf8.count)
    var bytes = text.utf8.makeIterator()
    while let byte = bytes.next() {
        guard byte == UInt8(ascii: "%") else {
            result.appendEncoded(CollectionOfOne(byte), keeping: kept)
            continue
        }
        guard let high = bytes.next().flatMap(Hex.value), let low = bytes.next().flatMap(Hex.value)
        else {
            throw .invalid("a percent sign in a URL must be followed by two hexadecimal digits")
        }
        result.appendEncoded(CollectionOfOne(high << 4 | low))
    }
    return String(decoding: result, as: UTF8.self)
}

/// RFC 3986 section 5.2.4, for a path that begins with a slash. An empty path becomes a slash.
func removingDotSegments(_ path: String) -> String {
    // Most paths have none.
    guard path.isEmpty || path.contains("/.") else { return path }
    var kept: [Substring] = []
    let segments = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
    for segment in segments {
        switch segment {
        case ".": break
        case "..": _ = kept.popLast()
        default: kept.append(segment)
        }
    }
    if segments.last == "." || segments.last == ".." { kept.append("") }
    return "/" + kept.joined(separator: "/")
}
