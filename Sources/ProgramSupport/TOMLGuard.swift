import ThumbcacheProtocol

/// Rejects documents that crash the parser toml++: a section without a name (`[#`), a list closed by a brace (`[1, }`),
/// an invalid time after a date (`1979-05-27T=`), and deep nesting, which it parses by recursion. Other errors are left
/// to the parser.
public struct TOMLGuard {
    /// Parts of a dotted key.
    private static let longestKey = 16
    /// Levels of nested lists and tables.
    private static let deepestValue = 32

    private var rest: Substring.UTF8View
    private var line = 1
    private var open: [UInt8] = []
    private var dots = 0

    public static func check(_ text: String) throws(ConfigurationError.Problem) {
        var scan = TOMLGuard(rest: Substring(text).utf8)
        // A byte order mark may precede the first line.
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
            case UInt8(ascii: "[") where isLineStart && open.isEmpty: try checkHeader()
            case UInt8(ascii: "["), UInt8(ascii: "{"):
                open.append(byte)
                dots = 0
                guard open.count <= Self.deepestValue else {
                    throw problem("lists and tables are nested more than \(Self.deepestValue) deep")
                }
            case UInt8(ascii: "]"): _ = open.popLast()
            case UInt8(ascii: "}"):
                if open.popLast() == UInt8(ascii: "[") { throw problem("a list ends with ], not with }") }
            case UInt8(ascii: ","), UInt8(ascii: "="): dots = 0
            case UInt8(ascii: "."):
                dots += 1
                guard dots < Self.longestKey else { throw problem("a key has more than \(Self.longestKey) parts") }
            case UInt8(ascii: "0")...UInt8(ascii: "9"): try checkDate()
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

    /// Checks a date, after its first digit: text that follows it must begin like a time.
    private func checkDate() throws(ConfigurationError.Problem) {
        let shape = "ddd-dd-dd"
        let date = rest.prefix(shape.utf8.count)
        guard date.count == shape.utf8.count,
            zip(date, shape.utf8).allSatisfy({ $1 == UInt8(ascii: "d") ? isDigit($0) : $0 == $1 })
        else { return }
        let time = rest.dropFirst(date.count)
        let end = " \t\r\n#,]}".utf8
        switch time.first {
        case UInt8(ascii: "T"), UInt8(ascii: "t"):
            if let next = time.dropFirst().first, isDigit(next) { return }
        case UInt8(ascii: " "):
            guard let next = time.dropFirst().first, !isDigit(next), !end.contains(next) else { return }
        default: return
        }
        throw problem("a date with a time is written as in 1979-05-27T07:32:00")
    }

    private func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

    private mutating func skipBlanks() { rest = rest.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") } }

    /// Skips a string in any of the four kinds of quotes, after the first quote.
    private mutating func skipString(_ quote: UInt8) {
        let isLong = rest.starts(with: [quote, quote])
        if isLong { rest = rest.dropFirst(2) }
        while let byte = rest.first {
            if byte == UInt8(ascii: "\n") {
                // Only a string in triple quotes continues.
                guard isLong else { return }
                line += 1
            }
            rest = rest.dropFirst()
            if byte == UInt8(ascii: "\\"), quote == UInt8(ascii: "\""), rest.first != UInt8(ascii: "\n") {
                rest = rest.dropFirst()
            } else if byte == quote, !isLong || rest.starts(with: [quote, quote]) {
                // Up to two quotes may precede the closing three.
                rest = isLong ? rest.drop { $0 == quote } : rest
                return
            }
        }
    }

    private func problem(_ sentence: String) -> ConfigurationError.Problem {
        .init(line: line, key: nil, sentence: "not TOML: \(sentence)")
    }
}
