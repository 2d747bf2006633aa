import NIOCore
import RESP

/// Reads the members of a map. What is missing or of another kind is the daemon's mistake, and thrown as such.
struct ReplyReader {
    private let map: Value

    init(_ map: Value) { self.map = map }

    func bytes(_ key: String) throws(ThumbcacheError) -> ByteBuffer {
        guard let bytes = map[key]?.bytes else { throw missing(key, "a string") }
        return bytes
    }

    func text(_ key: String) throws(ThumbcacheError) -> String {
        guard let text = map[key]?.text else { throw missing(key, "a string") }
        return text
    }

    func optionalText(_ key: String) -> String? { map[key]?.text }

    func number(_ key: String) throws(ThumbcacheError) -> Int {
        guard let number = map[key]?.number else { throw missing(key, "a number") }
        return number
    }

    /// nil for a null.
    func optionalNumber(_ key: String) throws(ThumbcacheError) -> Int? {
        if map[key]?.isNull == true { return nil }
        return try number(key)
    }

    private func missing(_ key: String, _ kind: String) -> ThumbcacheError {
        .protocolViolation("a reply without '\(key)', which is \(kind)")
    }
}

extension Value {
    func expectingText() throws(ThumbcacheError) -> String {
        guard let text else { throw .protocolViolation("a reply that is no text where one was due") }
        return text
    }

    func expectingOK() throws(ThumbcacheError) {
        guard text == "OK" else { throw .protocolViolation("a reply that is not OK where that was due") }
    }
}
