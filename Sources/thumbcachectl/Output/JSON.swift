import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// A JSON text that is put together here, beside values that came from the daemon.
enum JSON {
    case null
    case bool(Bool)
    case integer(Int)
    /// What is no number in JSON becomes null.
    case number(Double)
    case string(String)
    case array([JSON])
    case object([(String, JSON)])

    /// Bytes as everywhere in the output: a string, or `{"base64": "…"}`.
    static func id(_ id: ThumbcacheID) -> JSON {
        String(validating: id.bytes, as: UTF8.self).map { .string($0) }
            ?? .object([("base64", .string(base64(id.bytes)))])
    }

    /// On one line.
    var text: String {
        switch self {
        case .null: "null"
        case .bool(let value): "\(value)"
        case .integer(let number): "\(number)"
        case .number(let number):
            if let whole = Int(exactly: number) { "\(whole)" } else { number.isFinite ? "\(number)" : "null" }
        case .string(let text): Value.simpleString(text).json
        case .array(let elements): "[" + elements.map(\.text).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { "\(Value.simpleString($0).json):\($1.text)" }.joined(separator: ",") + "}"
        }
    }
}
