import LinuxSupport
import NIOCore
import ThumbcacheProtocol

struct Printer {
    enum Style {
        /// Keys and values in two columns, for a terminal.
        case aligned
        /// `key value` lines with one space, for scripts.
        case plain
        case json
    }

    let style: Style

    /// Prints one line per entry of a map or element of an array, and one line for any other value.
    func show(_ value: Value) throws(Failure) {
        try write(Array(lines(of: value).map { $0 + "\n" }.joined().utf8))
    }

    func lines(of value: Value) -> [String] {
        switch (style, value) {
        case (.json, _): return [value.json]
        case (_, .map):
            let pairs = (value.entries ?? []).map { (key: $0.key.plain, value: shown($0.key, $0.value)) }
            let width = style == .aligned ? 1 + (pairs.map(\.key.count).max() ?? 0) : 0
            return pairs.map { padded($0.key, width) + " " + $0.value }
        case (_, .array(let values)): return values.map(\.plain)
        default: return [value.plain]
        }
    }

    /// On a terminal, seconds are shown as a date or a duration.
    private func shown(_ key: Value, _ value: Value) -> String {
        guard style == .aligned, case .integer(let seconds) = value else { return value.plain }
        return switch key.text {
        case StatKey.loggedInAt.rawValue: Times.Moment(seconds: seconds, milliseconds: 0).local
        case MetaKey.age.rawValue, MetaKey.ttl.rawValue: Times.duration(seconds)
        default: value.plain
        }
    }
}

extension Value {
    /// One line of text. A null is `-`.
    fileprivate var plain: String {
        switch self {
        case .null: "-"
        case .integer(let number): "\(number)"
        case .error(let code, let message): PlainText.escape("\(code) \(message)")
        case .array(let values), .map(let values), .push(let values): values.map(\.plain).joined(separator: " ")
        case .bulk(let bytes): PlainText.escape(bytes.readableBytesView)
        case .simpleString(let text): PlainText.escape(text)
        }
    }

    /// A JSON text (RFC 8259) on one line. Bytes that are not UTF-8 become `{"base64": "…"}`.
    var json: String {
        switch self {
        case .null: "null"
        case .integer(let number): "\(number)"
        case .error(let code, let message): "{\"error\":\(quote("\(code) \(message)"))}"
        case .array(let values), .push(let values): "[" + values.map(\.json).joined(separator: ",") + "]"
        case .map:
            "{" + (entries ?? []).map { "\(quote($0.key.text ?? "")):\($0.value.json)" }.joined(separator: ",") + "}"
        case .bulk(let bytes):
            String(validating: bytes.readableBytesView, as: UTF8.self).map(quote)
                ?? "{\"base64\":\"\(base64(Array(bytes.readableBytesView)))\"}"
        case .simpleString(let text): quote(text)
        }
    }
}

/// Quotes a JSON string. Characters that could affect a terminal are escaped; other characters stay readable.
private func quote(_ text: String) -> String {
    let shown = escaped(text.unicodeScalars) { scalar in
        String(scalar).utf16.map { "\\u" + Hex.text([UInt8($0 >> 8), UInt8($0 & 0xff)]) }.joined()
    }
    return "\"\(shown)\""
}

func padded(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(0, width - text.count))
}

/// RFC 4648 section 4, with padding.
func base64(_ bytes: [UInt8]) -> String {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: 3) {
        let group = bytes[start..<min(start + 3, bytes.count)]
        let bits = group.reduce(0) { $0 << 8 | Int($1) } << (8 * (3 - group.count))
        for digit in 0..<4 {
            text.append(digit <= group.count ? alphabet[bits >> (18 - 6 * digit) & 63] : UInt8(ascii: "="))
        }
    }
    return String(decoding: text, as: UTF8.self)
}
