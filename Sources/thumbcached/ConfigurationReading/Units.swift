/// Sizes as the configuration writes them: `64MiB`.
enum ByteSize {
    private static let units: [(suffix: String, factor: Int)] = [
        ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1),
    ]

    /// Bytes, or nil for what is no size. A plain `0` needs no unit.
    static func parse(_ text: String) -> Int? {
        text == "0" ? 0 : Quantity.parse(text, units: units)
    }

    /// In the largest unit that leaves a whole number.
    static func format(_ bytes: Int) -> String {
        bytes == 0 ? "0" : Quantity.format(bytes, units: units)
    }
}

/// Times as the configuration writes them: `250ms`. In milliseconds.
enum TimeSpan {
    private static let units: [(suffix: String, factor: Int)] = [
        ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1),
    ]

    /// Milliseconds, or nil for what is no time.
    static func parse(_ text: String) -> Int? {
        Quantity.parse(text, units: units)
    }

    /// In the largest unit that leaves a whole number.
    static func format(_ milliseconds: Int) -> String {
        milliseconds == 0 ? "0s" : Quantity.format(milliseconds, units: units)
    }
}

/// A whole number and its unit, with nothing between.
private enum Quantity {
    static func parse(_ text: String, units: [(suffix: String, factor: Int)]) -> Int? {
        let digits = text.utf8.prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
        let suffix = text.utf8.dropFirst(digits.count)
        guard let number = Int(Substring(digits)),
            let unit = units.first(where: { $0.suffix.utf8.elementsEqual(suffix) })
        else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit.factor)
        return overflow ? nil : product
    }

    static func format(_ amount: Int, units: [(suffix: String, factor: Int)]) -> String {
        let unit = units.first { amount % $0.factor == 0 }
        return unit.map { "\(amount / $0.factor)\($0.suffix)" } ?? "\(amount)"
    }
}
