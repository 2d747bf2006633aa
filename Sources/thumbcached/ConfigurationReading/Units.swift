/// Sizes as the configuration writes them: `64MiB`.
enum ByteSize {
    private static let units = Units([("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])

    /// Bytes, or nil for what is no size. A plain `0` needs no unit.
    static func parse(_ text: String) -> Int? { text == "0" ? 0 : units.parse(text) }

    static func format(_ bytes: Int) -> String { bytes == 0 ? "0" : units.format(bytes) }
}

/// Times as the configuration writes them: `250ms`. In milliseconds.
enum TimeSpan {
    private static let units = Units([("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)])

    static func parse(_ text: String) -> Int? { units.parse(text) }

    static func format(_ milliseconds: Int) -> String { milliseconds == 0 ? "0s" : units.format(milliseconds) }
}

/// How a whole number and its unit are written, with nothing between.
private struct Units {
    /// The largest first; the last is 1.
    private let units: [(suffix: String, factor: Int)]

    init(_ units: [(suffix: String, factor: Int)]) { self.units = units }

    /// In the smallest unit; nil for what is no such quantity.
    func parse(_ text: String) -> Int? {
        let digits = text.utf8.prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
        let suffix = text.utf8.dropFirst(digits.count)
        guard let number = Int(Substring(digits)),
            let unit = units.first(where: { $0.suffix.utf8.elementsEqual(suffix) })
        else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit.factor)
        return overflow ? nil : product
    }

    /// In the largest unit that leaves a whole number.
    func format(_ amount: Int) -> String {
        let unit = units.first { amount % $0.factor == 0 }
        return unit.map { "\(amount / $0.factor)\($0.suffix)" } ?? "\(amount)"
    }
}

// MARK: Text in messages

/// A key as TOML writes it: bare where it can be, else in quotes.
func keyText(_ key: String) -> String {
    !key.isEmpty && key.utf8.allSatisfy(isWordByte) ? key : quoted(key)
}

/// Letters, digits, `-` and `_`.
func isWordByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
        true
    default: false
    }
}

/// A value in quotes for a message: on one line, and cut where it is long.
func quoted(_ text: String) -> String {
    let escaped = text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
    return "\"\(oneLine(String(escaped.unicodeScalars.prefix(64))))\(escaped.unicodeScalars.count > 64 ? "…" : "")\""
}

/// Text of somebody else's, with control characters shown as numbers: it neither ends the line nor moves the cursor.
func oneLine(_ text: String) -> String {
    text.unicodeScalars.reduce(into: "") { result, scalar in
        switch scalar {
        case "\u{20}"..."\u{7e}", "\u{a0}"...: result.unicodeScalars.append(scalar)
        default: result += "\\u{\(String(scalar.value, radix: 16))}"
        }
    }
}
