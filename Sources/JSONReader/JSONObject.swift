import LinuxSupport

/// Selected members of a JSON object (RFC 8259), decoded on access.
///
/// For untrusted responses that contain secrets: only decoded strings are copied, and they are wiped. Other members are
/// skipped. Nesting does not cause recursion.
public struct JSONObject {
    /// Maximum nesting depth.
    public static let deepest = 64

    private let bytes: UnsafeRawBufferPointer
    /// Positions of the values, of strings including their quotes.
    private var values: [String: Range<Int>] = [:]

    /// Finds members by name; one that is null counts as absent. Returns nil unless the bytes are a JSON object that
    /// contains each name at most once.
    /// - Parameter bytes: must outlive this value.
    public init?(_ bytes: UnsafeRawBufferPointer, members names: Set<String>) {
        self.bytes = bytes
        var cursor = JSONCursor(bytes)
        do throws(JSONCursor.Malformed) {
            try cursor.expect("{")
            if !cursor.consume("}") {
                repeat {
                    let name = try cursor.name()
                    let value = try cursor.value()
                    guard let known = names.first(where: { isName(name, $0) }), bytes[value.lowerBound] != "n" else {
                        continue
                    }
                    guard values.updateValue(value, forKey: known) == nil else { return nil }
                } while cursor.consume(",")
                try cursor.expect("}")
            }
            try cursor.expectEnd()
        } catch {
            return nil
        }
    }

    public func has(_ name: String) -> Bool { values[name] != nil }
    public func hasText(_ name: String) -> Bool { values[name].map { bytes[$0.lowerBound] == "\"" } ?? false }

    /// Lends a string in memory that is wiped afterwards. Returns nil unless it is a string of ASCII characters.
    public func withText<Result>(_ name: String, _ body: (UnsafeRawBufferPointer) -> Result?) -> Result? {
        guard let value = values[name], bytes[value.lowerBound] == "\"" else { return nil }
        // Decoding does not lengthen a string, so the array is never moved and only one copy has to be wiped.
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

    /// Returns a number, or a string that contains one; may be infinite. Nil for any other value.
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
