import NIOCore
import ThumbcacheProtocol

/// Reads the members of a map, fastest in the order of the reply. A missing or mistyped member throws
/// ``ThumbcacheError/protocolViolation(_:)``.
struct ReplyReader {
    /// Alternating keys and values.
    private let members: ValueList
    /// The index at which the search begins.
    private var next = 0

    init(_ map: Value) {
        members =
            switch map {
            case .map(let members), .array(let members): members.count.isMultiple(of: 2) ? members : []
            default: []
            }
    }

    mutating func value(_ key: String) -> Value? { index(of: key).map { members[$0] } }

    private mutating func index(of key: String) -> Int? {
        guard let index = members.indexOfValue(key, from: next) else { return nil }
        next = index + 1
        return index
    }

    mutating func bytes(_ key: String) throws(ThumbcacheError) -> ByteBuffer {
        guard let bytes = value(key)?.bytes else { throw missing(key, "a string") }
        return bytes
    }

    mutating func text(_ key: String) throws(ThumbcacheError) -> String {
        guard let text = optionalText(key) else { throw missing(key, "a string") }
        return text
    }

    mutating func optionalText(_ key: String) -> String? {
        guard let index = index(of: key) else { return nil }
        return members.text(at: index)
    }

    mutating func number(_ key: String) throws(ThumbcacheError) -> Int {
        guard let number = value(key)?.number else { throw missing(key, "a number") }
        return number
    }

    mutating func optionalNumber(_ key: String) throws(ThumbcacheError) -> Int? {
        switch value(key) {
        case .null?: return nil
        case let value?:
            guard let number = value.number else { throw missing(key, "a number") }
            return number
        case nil: throw missing(key, "a number")
        }
    }

    private func missing(_ key: String, _ kind: String) -> ThumbcacheError {
        .protocolViolation("the reply lacks '\(key)' as \(kind)")
    }
}

extension Value {
    func expectingText() throws(ThumbcacheError) -> String {
        guard let text else { throw .protocolViolation("the reply is not text") }
        return text
    }

    func expectingOK() throws(ThumbcacheError) {
        guard text == "OK" else { throw .protocolViolation("the reply is not OK") }
    }
}
