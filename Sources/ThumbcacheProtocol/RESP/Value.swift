import NIOCore

/// A reply, of either version of the protocol, as a client reads it. What thumbcached never sends has no form here.
public enum Value: Sendable, Equatable {
    case simpleString(String)
    /// `code` is the first word, `message` the others.
    case error(code: String, message: String)
    case integer(Int)
    /// Also verbatim text, without its format.
    case bulk(ByteBuffer)
    /// Any null: version 2 tells a missing bulk string from a missing array, which carries nothing here.
    case null
    /// Also a set.
    case array([Value])
    /// Keys and values in turns, in the order sent. Version 2 sends an array of them instead; see ``entries``.
    case map([Value])
    /// What nobody asked for. Version 2 sends an array instead.
    case push([Value])
}

/// What a value says, whichever of the forms it has that the two versions know.
extension Value {
    /// The bytes of a string of any kind.
    public var bytes: ByteBuffer? {
        switch self {
        case .bulk(let bytes): bytes
        case .simpleString(let text): ByteBuffer(string: text)
        default: nil
        }
    }

    /// A string of any kind, read as UTF-8; what is not UTF-8 is replaced.
    public var text: String? { bytes.map { String(buffer: $0) } }

    public var number: Int? {
        guard case .integer(let number) = self else { return nil }
        return number
    }

    /// The elements of an array or a push.
    public var elements: [Value]? {
        switch self {
        case .array(let elements), .push(let elements): elements
        default: nil
        }
    }

    /// The entries of a map; also of an array of keys and values, as version 2 has it.
    public var entries: [(key: Value, value: Value)]? {
        switch self {
        case .map(let elements), .array(let elements):
            guard elements.count.isMultiple(of: 2) else { return nil }
            return stride(from: 0, to: elements.count, by: 2).map { (elements[$0], elements[$0 + 1]) }
        default: return nil
        }
    }

    /// The value of a key in ``entries``. Costs a walk through them, and no memory.
    public subscript(key: String) -> Value? {
        switch self {
        case .map(let elements), .array(let elements):
            guard elements.count.isMultiple(of: 2) else { return nil }
            var index = 0
            while index < elements.count {
                if elements[index].says(key) { return elements[index + 1] }
                index += 2
            }
            return nil
        default: return nil
        }
    }

    /// Whether it is a string of these bytes.
    public func says(_ text: String) -> Bool {
        switch self {
        case .bulk(let bytes):
            bytes.readableBytes == text.utf8.count
                && bytes.withUnsafeReadableBytes { $0.elementsEqual(text.utf8) }
        case .simpleString(let own): own == text
        default: false
        }
    }

    public var isNull: Bool { self == .null }
}
