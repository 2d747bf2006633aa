import LinuxSupport

/// Some members of a JSON object (RFC 8259): found where they lie and decoded when they are asked for.
///
/// For an answer that anybody may have written and that holds secrets. Nothing is copied but what is lent, and that is
/// wiped. Nesting is followed without recursion. What stands in other members is skipped by its structure alone.
public struct JSONObject {
    /// Levels of arrays and objects within the object; more are refused.
    public static let deepest = 64

    private let bytes: UnsafeRawBufferPointer
    /// Where the values are; of texts with their quotes.
    private var values: [String: Range<Int>] = [:]

    /// - Parameters:
    ///   - bytes: have to stay for as long as this does.
    ///   - names: the members to find; one that is null is as if it were not there.
    /// - Returns: nil for what is no JSON object, and for one that has such a member twice.
    public init?(_ bytes: UnsafeRawBufferPointer, members names: Set<String>) {
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

    public func has(_ name: String) -> Bool { values[name] != nil }
    public func hasText(_ name: String) -> Bool { values[name].map { bytes[$0.lowerBound] == "\"" } ?? false }

    /// Lends a member's text, in memory that is wiped afterwards. Nil where it is no text of ASCII characters.
    public func withText<Result>(_ name: String, _ body: (UnsafeRawBufferPointer) -> Result?) -> Result? {
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
    public func number(_ name: String) -> Double? {
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
