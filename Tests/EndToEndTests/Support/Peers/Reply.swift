import Glibc

/// A RESP2 or RESP3 reply.
indirect enum Reply: Equatable, Sendable {
    case simple(String)
    /// Code and message.
    case error(String, String)
    case integer(Int64)
    case bulk([UInt8])
    case null
    case double(String)
    case boolean(Bool)
    case verbatim(String)
    case array([Reply])
    case map([Pair])
    case push([Reply])

    struct Pair: Equatable, Sendable {
        var key: Reply
        var value: Reply
    }

    /// Like the synthesized operator, but compares bytes with memcmp because tests run without optimization.
    static func == (left: Reply, right: Reply) -> Bool {
        switch (left, right) {
        case (.simple(let left), .simple(let right)): left == right
        case (.error(let left, let leftWords), .error(let right, let rightWords)):
            left == right && leftWords == rightWords
        case (.integer(let left), .integer(let right)): left == right
        case (.bulk(let left), .bulk(let right)): areSame(left, right)
        case (.null, .null): true
        case (.double(let left), .double(let right)): left == right
        case (.boolean(let left), .boolean(let right)): left == right
        case (.verbatim(let left), .verbatim(let right)): left == right
        case (.array(let left), .array(let right)): left == right
        case (.map(let left), .map(let right)): left == right
        case (.push(let left), .push(let right)): left == right
        default: false
        }
    }

    static let ok = Reply.simple("OK")

    /// An array of bulk strings.
    static func list(_ texts: String...) -> Reply { .array(texts.map { .bulk(Array($0.utf8)) }) }

    /// A bulk or simple string, as text.
    var text: String? {
        switch self {
        case .simple(let text), .verbatim(let text): text
        case .bulk(let bytes): String(decoding: bytes, as: UTF8.self)
        default: nil
        }
    }

    var bytes: [UInt8]? {
        if case .bulk(let bytes) = self { return bytes }
        return nil
    }

    var number: Int64? {
        if case .integer(let number) = self { return number }
        return nil
    }

    /// The code of an error, such as `NOLOGIN`.
    var code: String? {
        if case .error(let code, _) = self { return code }
        return nil
    }

    /// The value of a key in a map (RESP3) or in an array of keys and values (RESP2).
    subscript(key: String) -> Reply? {
        switch self {
        case .map(let pairs):
            return pairs.first { $0.key.text == key }?.value
        case .array(let elements):
            for index in stride(from: 0, to: elements.count - 1, by: 2) where elements[index].text == key {
                return elements[index + 1]
            }
            return nil
        default:
            return nil
        }
    }

    /// For messages of failed expectations: of long values only the length.
    var brief: String {
        switch self {
        case .bulk(let bytes) where bytes.count > 120: "\(bytes.count) bytes"
        case .array(let elements): "[" + elements.map(\.brief).joined(separator: ", ") + "]"
        case .map(let pairs): "{" + pairs.map { "\($0.key.brief): \($0.value.brief)" }.joined(separator: ", ") + "}"
        case .bulk, .simple: "\"\(text ?? "")\""
        default: "\(self)"
        }
    }
}

extension Reply {
    var elements: [Reply]? {
        if case .array(let elements) = self { return elements }
        return nil
    }
}

/// Compares bytes with memcmp.
func areSame(_ left: [UInt8], _ right: [UInt8]) -> Bool {
    guard left.count == right.count else { return false }
    return left.withUnsafeBytes { left in
        right.withUnsafeBytes { right in
            guard let leftBytes = left.baseAddress, let rightBytes = right.baseAddress else { return true }
            return memcmp(leftBytes, rightBytes, left.count) == 0
        }
    }
}
