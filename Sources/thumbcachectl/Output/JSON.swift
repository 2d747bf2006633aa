import LinuxSupport
import NIOCore
import RESP

/// A JSON text (RFC 8259), on one line.
enum JSON {
    case null
    case boolean(Bool)
    case integer(Int)
    case double(Double)
    case string(String)
    case array([JSON])
    /// In the order given.
    case object([Member])

    struct Member {
        let name: String
        let value: JSON

        init(_ name: String, _ value: JSON) {
            self.name = name
            self.value = value
        }
    }

    /// Bytes are a string where they are UTF-8. Where they are not, no string could hold them: they become
    /// `{"base64": "…"}`.
    init(_ bytes: ByteBuffer) {
        let bytes = Array(bytes.readableBytesView)
        self =
            String(validating: bytes, as: UTF8.self).map(JSON.string)
            ?? .object([Member("base64", .string(base64(bytes)))])
    }

    init(_ value: Value) {
        switch value {
        case .null: self = .null
        case .boolean(let value): self = .boolean(value)
        case .integer(let value): self = .integer(value)
        case .double(let value): self = .double(value)
        case .array(let values), .set(let values), .push(let values): self = .array(values.map(JSON.init))
        case .map(let entries): self = .object(entries.map { Member($0.key.text ?? "", JSON($0.value)) })
        case .bulk(let bytes), .verbatim(_, let bytes): self.init(bytes)
        case .simpleString(let text), .bigNumber(let text): self = .string(text)
        case .error(let code, let message): self = .object([Member("error", .string("\(code) \(message)"))])
        }
    }

    var text: String {
        switch self {
        case .null: "null"
        case .boolean(let value): "\(value)"
        case .integer(let value): "\(value)"
        // JSON has neither infinities nor NaN.
        case .double(let value): value.isFinite ? "\(value)" : "null"
        case .string(let value): Self.quote(value)
        case .array(let values): "[" + values.map(\.text).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { "\(Self.quote($0.name)):\($0.value.text)" }.joined(separator: ",") + "}"
        }
    }

    /// Everything beyond printable ASCII that could disturb a terminal is escaped; other characters stay readable.
    private static func quote(_ text: String) -> String {
        var result = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"", "\\": result += "\\\(scalar)"
            case "\n": result += "\\n"
            case "\t": result += "\\t"
            case "\r": result += "\\r"
            case _ where scalar.properties.generalCategory == .control || scalar.properties.generalCategory == .format:
                for unit in String(scalar).utf16 { result += "\\u" + Hex.text([UInt8(unit >> 8), UInt8(unit & 0xff)]) }
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}

/// RFC 4648 section 4, with padding.
func base64(_ bytes: [UInt8]) -> String {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: 3) {
        let group = bytes[start..<min(start + 3, bytes.count)]
        let bits = group.reduce(0) { $0 << 8 | Int($1) } << (8 * (3 - group.count))
        for place in 0..<4 {
            text.append(place <= group.count ? alphabet[bits >> (18 - 6 * place) & 63] : UInt8(ascii: "="))
        }
    }
    return String(decoding: text, as: UTF8.self)
}
