/// A JSON value (RFC 8259) from an untrusted sender.
///
/// The whole text is checked once, without recursion; each part is decoded when it is read. No input traps: values nest
/// at most ``JSONObject/deepest`` levels, and the caller bounds the number of bytes.
public struct JSONValue: Sendable {
    /// Characters of a number; longer ones are rejected.
    private static let longestNumber = 64

    private let bytes: [UInt8]
    private let range: Range<Int>

    /// Returns nil unless the bytes are one JSON value.
    public init?(_ bytes: [UInt8]) {
        let range = bytes.withUnsafeBytes { buffer -> Range<Int>? in
            var cursor = JSONCursor(buffer)
            do throws(JSONCursor.Malformed) {
                let range = try cursor.value()
                try cursor.expectEnd()
                return range
            } catch {
                return nil
            }
        }
        guard let range else { return nil }
        (self.bytes, self.range) = (bytes, range)
    }

    private init(_ bytes: [UInt8], _ range: Range<Int>) { (self.bytes, self.range) = (bytes, range) }

    public var isNull: Bool { bytes[range.lowerBound] == "n" }

    public var isObject: Bool { bytes[range.lowerBound] == "{" }

    /// nil for other values, for invalid UTF-8 and for unpaired surrogates.
    public var text: String? {
        bytes[range.lowerBound] == "\"" ? decoded(range) : nil
    }

    /// May be infinite; nil for other values and for numbers of more than 64 characters.
    public var number: Double? {
        guard let first = bytes[range].first, first == "-" || UInt8(ascii: "0")...UInt8(ascii: "9") ~= first,
            range.count <= Self.longestNumber
        else { return nil }
        return Double(String(decoding: bytes[range], as: UTF8.self))
    }

    public var elements: [JSONValue]? {
        parts("[", "]") { cursor throws(JSONCursor.Malformed) in try cursor.value() }?.map { JSONValue(bytes, $0) }
    }

    /// nil for other values and for objects that repeat a name.
    public var members: [String: JSONValue]? {
        let parts = parts("{", "}") { cursor throws(JSONCursor.Malformed) in
            (name: try cursor.name(), value: try cursor.value())
        }
        guard let parts else { return nil }
        var members: [String: JSONValue] = [:]
        members.reserveCapacity(parts.count)
        for part in parts {
            guard let name = decoded(part.name),
                members.updateValue(JSONValue(bytes, part.value), forKey: name) == nil
            else { return nil }
        }
        return members
    }

    /// Reads the parts between two brackets, separated by commas.
    private func parts<Part>(
        _ begin: Unicode.Scalar, _ end: Unicode.Scalar,
        _ read: (inout JSONCursor) throws(JSONCursor.Malformed) -> Part
    ) -> [Part]? {
        bytes.withUnsafeBytes { buffer in
            var cursor = JSONCursor(buffer, from: range.lowerBound)
            guard cursor.consume(begin) else { return nil }
            var parts: [Part] = []
            if cursor.consume(end) { return parts }
            do throws(JSONCursor.Malformed) {
                repeat { parts.append(try read(&cursor)) } while cursor.consume(",")
                try cursor.expect(end)
                return parts
            } catch {
                return nil
            }
        }
    }

    private func decoded(_ range: Range<Int>) -> String? {
        bytes.withUnsafeBytes { buffer in
            var characters = JSONCharacters(buffer, range)
            var text: [UInt8] = []
            text.reserveCapacity(range.count)
            // UTF-16 code units of the escapes read last: two of them may be one character.
            var escaped: [UInt16] = []
            func appendEscaped() -> Bool {
                guard !escaped.isEmpty else { return true }
                guard let part = String(validating: escaped, as: UTF16.self) else { return false }
                text += part.utf8
                escaped.removeAll(keepingCapacity: true)
                return true
            }
            while let unit = characters.next() {
                if characters.isEscape {
                    escaped.append(unit)
                } else {
                    guard appendEscaped() else { return nil }
                    text.append(UInt8(truncatingIfNeeded: unit))
                }
            }
            guard appendEscaped() else { return nil }
            return String(validating: text, as: UTF8.self)
        }
    }
}
