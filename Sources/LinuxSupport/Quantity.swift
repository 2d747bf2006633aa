/// The format of sizes and times in the configuration and on the command line: an integer directly followed by a unit.
public struct Quantity: Sendable {
    public let name: String
    public let example: String
    public let tooLittle: String
    public let tooMuch: String
    /// Units with their factors, the largest first. The last factor is 1.
    public let units: [(suffix: String, factor: Int)]
    /// The text for zero.
    public let none: String

    /// Sizes in bytes. A plain `0` needs no unit.
    public static let size = Quantity(
        name: "size", example: "64MiB", tooLittle: "little", tooMuch: "much",
        units: [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)], none: "0")
    /// Times in milliseconds.
    public static let time = Quantity(
        name: "time", example: "2s", tooLittle: "short", tooMuch: "long",
        units: [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)], none: "0s")

    /// Returns the amount in the smallest unit; nil if the text is invalid.
    public func parse(_ text: String) -> Int? {
        if text == none { return 0 }
        let digits = text.utf8.prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
        let suffix = text.utf8.dropFirst(digits.count)
        guard let number = Int(Substring(digits)),
            let unit = units.first(where: { $0.suffix.utf8.elementsEqual(suffix) })
        else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit.factor)
        return overflow ? nil : product
    }

    /// Formats an amount in the largest unit that gives an integer.
    public func format(_ amount: Int) -> String {
        let unit = units.first { amount % $0.factor == 0 }
        return amount == 0 ? none : unit.map { "\(amount / $0.factor)\($0.suffix)" } ?? "\(amount)"
    }
}
