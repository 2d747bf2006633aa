import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// A JSON value.
enum JSON {
    case null
    case bool(Bool)
    case integer(Int)
    /// Infinities and NaN are written as null.
    case number(Double)
    case string(String)
    case array([JSON])
    case object([(String, JSON)])

    /// An id: a string, or `{"base64": "…"}` if it is not UTF-8.
    static func id(_ id: ThumbcacheID) -> JSON {
        String(validating: id.bytes, as: UTF8.self).map { .string($0) }
            ?? .object([("base64", .string(base64(id.bytes)))])
    }

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
