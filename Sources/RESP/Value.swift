import NIOCore

/// A reply, of either version of the protocol, as a client reads it.
public indirect enum Value: Sendable {
    case simpleString(String)
    /// `code` is the first word, `message` the others.
    case error(code: String, message: String)
    case integer(Int)
    case bulk(ByteBuffer)
    /// Any null: version 2 tells a missing bulk string from a missing array, which carries nothing here.
    case null
    case array([Value])
    /// In the order sent. Version 2 sends an array of keys and values instead; see ``entries``.
    case map([(key: Value, value: Value)])
    case set([Value])
    /// A message that answers no request.
    case push([Value])
    case double(Double)
    case boolean(Bool)
    /// Text with a format of three letters, such as `txt`.
    case verbatim(format: String, text: ByteBuffer)
    /// A whole number beyond 64 bits, in decimal digits.
    case bigNumber(String)
}

extension Value: Equatable {
    public static func == (left: Value, right: Value) -> Bool {
        switch (left, right) {
        case (.simpleString(let left), .simpleString(let right)): left == right
        case (.error(let left, let leftMessage), .error(let right, let rightMessage)):
            left == right && leftMessage == rightMessage
        case (.integer(let left), .integer(let right)): left == right
        case (.bulk(let left), .bulk(let right)): left == right
        case (.null, .null): true
        case (.array(let left), .array(let right)): left == right
        case (.map(let left), .map(let right)): left.elementsEqual(right, by: ==)
        case (.set(let left), .set(let right)): left == right
        case (.push(let left), .push(let right)): left == right
        case (.double(let left), .double(let right)): left == right
        case (.boolean(let left), .boolean(let right)): left == right
        case (.verbatim(let left, let leftText), .verbatim(let right, let rightText)):
            left == right && leftText == rightText
        case (.bigNumber(let left), .bigNumber(let right)): left == right
        default: false
        }
    }
}

/// What a value says, whichever of the forms it has that the two versions know.
extension Value {
    /// The bytes of a bulk, simple or verbatim string.
    public var bytes: ByteBuffer? {
        switch self {
        case .bulk(let bytes), .verbatim(_, let bytes): bytes
        case .simpleString(let text): ByteBuffer(string: text)
        default: nil
        }
    }

    /// A string of any kind, read as UTF-8; what is not UTF-8 is replaced.
    public var text: String? {
        switch self {
        case .simpleString(let text), .bigNumber(let text): text
        default: bytes.map { String(buffer: $0) }
        }
    }

    public var number: Int? {
        guard case .integer(let number) = self else { return nil }
        return number
    }

    /// The elements of an array, a set or a push.
    public var elements: [Value]? {
        switch self {
        case .array(let elements), .set(let elements), .push(let elements): elements
        default: nil
        }
    }

    /// The entries of a map; also of an array of keys and values, as version 2 has it.
    public var entries: [(key: Value, value: Value)]? {
        switch self {
        case .map(let entries): return entries
        case .array(let elements) where elements.count.isMultiple(of: 2):
            return stride(from: 0, to: elements.count, by: 2).map { (elements[$0], elements[$0 + 1]) }
        default: return nil
        }
    }

    /// The value of a key in ``entries``. Costs a walk through them.
    public subscript(key: String) -> Value? {
        entries?.first { $0.key.text == key }?.value
    }

    public var isNull: Bool { self == .null }
}
