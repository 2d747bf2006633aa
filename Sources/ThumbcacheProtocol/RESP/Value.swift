import NIOCore

/// A decoded reply of either protocol version. Types that thumbcached never sends are not represented.
public enum Value: Sendable, Equatable {
    case simpleString(String)
    /// `code` is the first word, `message` the rest.
    case error(code: String, message: String)
    case integer(Int)
    /// A bulk string, or a verbatim string without its format.
    case bulk(ByteBuffer)
    /// Any null of either version.
    case null
    /// An array or a set.
    case array(ValueList)
    /// Alternating keys and values, in the order sent. Version 2 sends an array instead; see ``entries``.
    case map(ValueList)
    /// A push message. Version 2 sends an array instead.
    case push(ValueList)

    public static func array(_ elements: [Value]) -> Value { .array(ValueList(elements)) }

    public static func map(_ members: [Value]) -> Value { .map(ValueList(members)) }
}

/// Access to values that hides the differences of the two protocol versions.
extension Value {
    /// The bytes of a string of any kind.
    public var bytes: ByteBuffer? {
        switch self {
        case .bulk(let bytes): bytes
        case .simpleString(let text): ByteBuffer(string: text)
        default: nil
        }
    }

    /// The text of a string of any kind; invalid UTF-8 is replaced.
    public var text: String? {
        switch self {
        case .bulk(let bytes): String(buffer: bytes)
        case .simpleString(let text): text
        default: nil
        }
    }

    public var number: Int? {
        guard case .integer(let number) = self else { return nil }
        return number
    }

    public var elements: [Value]? {
        switch self {
        case .array(let elements), .push(let elements): Array(elements)
        default: nil
        }
    }

    /// The entries of a map, or of an array of keys and values as in version 2.
    public var entries: [(key: Value, value: Value)]? {
        switch self {
        case .map(let elements), .array(let elements):
            guard elements.count.isMultiple(of: 2) else { return nil }
            return stride(from: 0, to: elements.count, by: 2).map { (elements[$0], elements[$0 + 1]) }
        default: return nil
        }
    }

    /// The value of a key in ``entries``. A linear search without allocation.
    public subscript(key: String) -> Value? {
        switch self {
        case .map(let elements), .array(let elements):
            guard elements.count.isMultiple(of: 2) else { return nil }
            return elements.indexOfValue(key).map { elements[$0] }
        default: return nil
        }
    }

    public var isNull: Bool { self == .null }
}
