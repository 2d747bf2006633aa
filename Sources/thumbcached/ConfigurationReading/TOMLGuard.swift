/// Refuses what toml++ dies of instead of refusing it: a section without a name, as in `[#`, which it takes for impossible, and
/// depth, which it and whoever walks its tree follow by recursion.
///
/// Up to the first mistake of a document both read the same; whatever else is wrong is left to the parser.
struct TOMLGuard {
    /// Parts of one key, with its dots.
    private static let longestKey = 16
    /// Lists and tables inside one another.
    private static let deepestValue = 32

    private var rest: Substring.UTF8View
    private var line = 1
    private var depth = 0
    private var dots = 0

    /// - Throws: the first such thing, with its line.
    static func check(_ text: String) throws(ConfigurationError.Problem) {
        var scan = TOMLGuard(rest: Substring(text).utf8)
        // A byte order mark is no part of the first line.
        if scan.rest.starts(with: [0xef, 0xbb, 0xbf]) { scan.rest = scan.rest.dropFirst(3) }
        try scan.run()
    }

    private mutating func run() throws(ConfigurationError.Problem) {
        var isLineStart = true
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\n"):
                line += 1
                dots = 0
                isLineStart = true
                continue
            case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\r"): continue
            case UInt8(ascii: "#"): rest = rest.drop { $0 != UInt8(ascii: "\n") }
            case UInt8(ascii: "\""), UInt8(ascii: "'"): skipString(byte)
            case UInt8(ascii: "[") where isLineStart && depth == 0: try checkHeader()
            case UInt8(ascii: "["), UInt8(ascii: "{"):
                depth += 1
                dots = 0
                guard depth <= Self.deepestValue else {
                    throw problem("more than \(Self.deepestValue) lists or tables inside one another")
                }
            case UInt8(ascii: "]"), UInt8(ascii: "}"): depth = max(0, depth - 1)
            case UInt8(ascii: ","), UInt8(ascii: "="): dots = 0
            case UInt8(ascii: "."):
                dots += 1
                guard dots < Self.longestKey else { throw problem("a key of more than \(Self.longestKey) parts") }
            default: break
            }
            isLineStart = false
        }
    }

    private mutating func checkHeader() throws(ConfigurationError.Problem) {
        skipBlanks()
        if rest.first == UInt8(ascii: "[") { rest = rest.dropFirst() }
        skipBlanks()
        guard let next = rest.first, !"]\"'".utf8.contains(next), !isWordByte(next) else { return }
        throw problem("a section needs a name, as in [limits]")
    }

    private mutating func skipBlanks() {
        rest = rest.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
    }

    /// A string in any of the four kinds of quotes, behind the first.
    private mutating func skipString(_ quote: UInt8) {
        let isLong = rest.starts(with: [quote, quote])
        if isLong { rest = rest.dropFirst(2) }
        while let byte = rest.first {
            if byte == UInt8(ascii: "\n") {
                // Only a long string goes on.
                guard isLong else { return }
                line += 1
            }
            rest = rest.dropFirst()
            if byte == UInt8(ascii: "\\"), quote == UInt8(ascii: "\""), rest.first != UInt8(ascii: "\n") {
                rest = rest.dropFirst()
            } else if byte == quote, !isLong || rest.starts(with: [quote, quote]) {
                // Up to two quotes may stand right before the closing three.
                rest = isLong ? rest.drop { $0 == quote } : rest
                return
            }
        }
    }

    private func problem(_ sentence: String) -> ConfigurationError.Problem {
        .init(key: nil, sentence: "not TOML: \(sentence)")
    }
}
