/// Where each key of a TOML document stands. TOMLKit does not tell, and an error that names the line is worth a scan.
///
/// It runs before the parser, too, and refuses what that parser dies of instead of refusing it: a section without a
/// name, as in `[#`, which toml++ takes for impossible, and depth, which it and whoever walks its tree follow by
/// recursion. Up to the first mistake of a document both read the same; whatever else is wrong is left to the parser.
struct TOMLLines {
    /// Parts of one key, with its dots.
    private static let longestKey = 16
    /// Lists and tables inside one another.
    private static let deepestValue = 32

    private var lines: [[String]: Int] = [:]
    private var rest: Substring.UnicodeScalarView
    private var line = 1

    init(_ text: String) throws(ConfigurationError.Problem) {
        rest = Substring(text).unicodeScalars
        // A byte order mark is no part of the first key.
        if rest.first == "\u{feff}" { rest.removeFirst() }
        var section: [String] = []
        while skipBlanks(andNewlines: true), let next = rest.first {
            if next == "[" {
                section = try readHeader()
                record(section)
                skip(while: { $0 != "\n" })
            } else {
                try readPair(in: section, depth: 0)
            }
        }
    }

    /// The line, from 1, of the first mention of a key; list elements are named `[0]`, `[1]` and so on.
    subscript(path: [String]) -> Int? { lines[path] }

    private mutating func record(_ path: [String]) {
        for length in path.indices.map({ $0 + 1 }) where lines[Array(path.prefix(length))] == nil {
            lines[Array(path.prefix(length))] = line
        }
    }

    private mutating func readHeader() throws(ConfigurationError.Problem) -> [String] {
        take()
        skipBlanks(andNewlines: false)
        if rest.first == "[" { take() }
        skipBlanks(andNewlines: false)
        if let next = rest.first, next != "]", next != "\"", next != "'",
            !(next.isASCII && isWordByte(UInt8(ascii: next)))
        {
            throw problem("a section needs a name, as in [limits]")
        }
        return try readKey()
    }

    private mutating func readPair(in path: [String], depth: Int) throws(ConfigurationError.Problem) {
        let key = path + (try readKey())
        record(key)
        guard rest.first == "=" else {
            // No key, no value: leave the line, so that the scan always ends.
            skip(while: { $0 != "\n" })
            return
        }
        take()
        try readValue(of: key, depth: depth)
    }

    private mutating func readValue(of path: [String], depth: Int) throws(ConfigurationError.Problem) {
        skipBlanks(andNewlines: false)
        record(path)
        switch rest.first {
        case "\"", "'": _ = readString()
        case "[", "{":
            guard depth < Self.deepestValue else {
                throw problem("more than \(Self.deepestValue) lists or tables inside one another")
            }
            if rest.first == "[" {
                try readList(of: path, depth: depth + 1)
            } else {
                try readInlineTable(of: path, depth: depth + 1)
            }
        default: skip(while: { !",]}#\n".unicodeScalars.contains($0) })
        }
    }

    private mutating func readList(of path: [String], depth: Int) throws(ConfigurationError.Problem) {
        take()
        var index = 0
        while skipBlanks(andNewlines: true), let next = rest.first, next != "]" {
            if next == "," || next == "}" {
                take()
            } else {
                try readValue(of: path + ["[\(index)]"], depth: depth)
                index += 1
            }
        }
        take()
    }

    private mutating func readInlineTable(of path: [String], depth: Int) throws(ConfigurationError.Problem) {
        take()
        while skipBlanks(andNewlines: true), let next = rest.first, next != "}" {
            if next == "," || next == "]" { take() } else { try readPair(in: path, depth: depth) }
        }
        take()
    }

    /// A key with its dots: `a."b.c".d`.
    private mutating func readKey() throws(ConfigurationError.Problem) -> [String] {
        var parts: [String] = []
        while true {
            guard parts.count < Self.longestKey else {
                throw problem("a key of more than \(Self.longestKey) parts")
            }
            skipBlanks(andNewlines: false)
            if rest.first == "\"" || rest.first == "'" {
                parts.append(readString())
            } else {
                let before = rest
                skip(while: { !" \t.=]#\n,}".unicodeScalars.contains($0) })
                parts.append(String(before[..<rest.startIndex]))
            }
            skipBlanks(andNewlines: false)
            guard rest.first == "." else { return parts }
            take()
        }
    }

    private func problem(_ sentence: String) -> ConfigurationError.Problem {
        .init(line: line, key: nil, sentence: "not TOML: \(sentence)")
    }

    /// A string in any of the four kinds of quotes. Escapes stay as they are written.
    private mutating func readString() -> String {
        guard let quote = take() else { return "" }
        var content = ""
        let isLong = rest.starts(with: [quote, quote])
        if isLong { rest = rest.dropFirst(2) }
        while let next = rest.first {
            if next == quote, !isLong || rest.starts(with: [quote, quote, quote]) {
                rest = rest.dropFirst(isLong ? 3 : 1)
                // Up to two quotes may stand right before the closing three.
                if isLong { skip(while: { $0 == quote }) }
                return content
            }
            content.unicodeScalars.append(next)
            take()
            if next == "\\", quote == "\"", let escaped = take() { content.unicodeScalars.append(escaped) }
        }
        return content
    }

    @discardableResult private mutating func take() -> Unicode.Scalar? {
        guard let next = rest.popFirst() else { return nil }
        if next == "\n" { line += 1 }
        return next
    }

    private mutating func skip(while condition: (Unicode.Scalar) -> Bool) {
        while let next = rest.first, condition(next) { take() }
    }

    /// Skips white space and comments. Always true, so that it can stand in a condition.
    @discardableResult private mutating func skipBlanks(andNewlines: Bool) -> Bool {
        while let next = rest.first {
            if next == " " || next == "\t" || (andNewlines && (next == "\n" || next == "\r")) {
                take()
            } else if andNewlines, next == "#" {
                skip(while: { $0 != "\n" })
            } else {
                return true
            }
        }
        return true
    }
}
