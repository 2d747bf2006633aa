import NIOCore
import RESP

/// Prints results: for people aligned, for programs one `key value` a line or JSON.
struct Printer {
    enum Style {
        /// On a terminal: values in a column.
        case aligned
        /// To a pipe or a file: one space between key and value, whatever the lengths.
        case plain
        case json
    }

    let output: StandardStream
    let style: Style

    /// Named values, in order. A null is `-`.
    func pairs(_ pairs: [(key: String, value: Value)]) throws(Failure) {
        if style == .json { return try json(.object(pairs.map { JSON.Member($0.key, JSON($0.value)) })) }
        let width = style == .aligned ? pairs.map(\.key.count).max() ?? 0 : 0
        try lines(
            pairs.map { key, value in
                let gap = String(repeating: " ", count: max(0, width - key.count) + (style == .aligned ? 2 : 1))
                return PlainText.escape(key) + gap + Self.plain(value)
            })
    }

    /// One value a line.
    func list(_ values: [Value]) throws(Failure) {
        if style == .json { return try json(.array(values.map(JSON.init))) }
        try lines(values.map(Self.plain))
    }

    func json(_ json: JSON) throws(Failure) {
        try lines([json.text])
    }

    func lines(_ lines: [String]) throws(Failure) {
        try output.write(Array(lines.map { $0 + "\n" }.joined().utf8))
    }

    private static func plain(_ value: Value) -> String {
        switch value {
        case .null: "-"
        case .integer(let number): "\(number)"
        case .boolean(let value): "\(value)"
        case .double(let value): "\(value)"
        case .error(let code, let message): PlainText.escape("\(code) \(message)")
        case .array(let values), .set(let values), .push(let values): values.map(plain).joined(separator: " ")
        case .map(let entries): entries.map { "\(plain($0.key))=\(plain($0.value))" }.joined(separator: " ")
        case .bulk, .simpleString, .verbatim, .bigNumber:
            PlainText.escape(value.bytes.map { Array($0.readableBytesView) } ?? Array((value.text ?? "").utf8))
        }
    }
}

extension Value {
    /// The entries of a map as named values.
    var pairs: [(key: String, value: Value)] {
        (entries ?? []).map { (key: $0.key.text ?? "", value: $0.value) }
    }
}
