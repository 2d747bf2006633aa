import ThumbcacheProtocol

/// A document that is read although lines of it may not be TOML: each mistake is named and repaired, so that one reading
/// names all mistakes.
struct TOMLRepair {
    /// Mistakes in one document that are named; the first that is not ends the reading.
    private static let most = 20

    private(set) var table: [String: TOMLNode] = [:]
    private(set) var problems: [ConfigurationError.Problem] = []
    /// Whether the table holds what was meant: no line was left out.
    private(set) var isWhole = true

    init(_ text: String) {
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        var repaired: Set<Int> = []
        while true {
            do throws(ConfigurationError.Problem) {
                table = try TOMLNode.parse(lines.joined(separator: "\n"))
                return
            } catch {
                let index = (error.line ?? 0) - 1
                guard lines.indices.contains(index), problems.count < Self.most else {
                    problems.append(error)
                    isWhole = false
                    return
                }
                let (key, line) = (Self.section(of: lines, before: index), lines[index])
                let isFirst = repaired.insert(index).inserted
                if isFirst, let mistake = TOMLMistake(line) {
                    problems.append(.init(line: error.line, key: key + mistake.key, sentence: mistake.sentence))
                    lines[index] = mistake.repaired[...]
                } else {
                    if isFirst { problems.append(error) }
                    isWhole = false
                    // It was left out already, and the parser still finds fault there.
                    if !isFirst, line.isEmpty { return }
                    // What spans lines cannot be left out line by line.
                    guard !line.contains(where: { "[]{}".contains($0) }),
                        !line.contains("\"\"\""), !line.contains("'''")
                    else { return }
                    lines[index] = ""
                }
            }
        }
    }

    /// The name of the section in which a line is, with a dot at its end; empty for none.
    private static func section(of lines: [Substring], before index: Int) -> String {
        for line in lines[..<index].reversed() {
            let line = line.drop { $0 == " " || $0 == "\t" }
            guard line.first == "[" else { continue }
            let name = line.drop { $0 == "[" }.prefix { $0 != "]" && $0 != "\r" }
            return name.utf8.allSatisfy { isWordByte($0) || $0 == UInt8(ascii: ".") } ? "\(name)." : ""
        }
        return ""
    }
}

/// What is wrong with a line `key = value` that is not TOML, if a usual mistake explains it.
struct TOMLMistake {
    let key: String
    let sentence: String
    /// The line as it was probably meant.
    let repaired: String

    private static let doubleQuotes: Set<Character> = ["“", "”", "„", "‟", "«", "»"]
    private static let singleQuotes: Set<Character> = ["‘", "’", "‚", "‛"]
    /// Words for true and false elsewhere.
    private static let flags = [
        "yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false",
    ]

    /// nil where no usual mistake explains it.
    init?(_ line: Substring) {
        guard let equals = line.firstIndex(of: "=") else { return nil }
        let key = Self.trimmed(line[..<equals])
        guard !key.isEmpty, key.utf8.count <= 128,
            key.utf8.allSatisfy({ isWordByte($0) || $0 == UInt8(ascii: ".") })
        else { return nil }
        self.key = String(key)
        let value = Self.trimmed(line[line.index(after: equals)...])
        // A password may be part of it.
        let isSecret = value.contains("://") || value.contains("@")
        func example(_ value: String) -> String { "\(key) = \(isSecret ? "\"...\"" : oneLine(value))" }
        func repaired(_ value: String) -> String { "\(key) = \(value)" }

        if let quote = Self.typographicQuote(of: value) {
            let straight = String(
                value.map { character -> Character in
                    if Self.doubleQuotes.contains(character) { return "\"" }
                    return Self.singleQuotes.contains(character) ? "'" : character
                })
            sentence = "\(quote) is a typographic quote; write straight quotes: \(example(straight))"
            self.repaired = repaired(straight)
            return
        }
        guard let first = value.first, !value.contains("\\") else { return nil }
        if first == "\"" || first == "'" {
            // Only a quote at the beginning: a second one would end a value, and something else is wrong.
            guard !value.dropFirst().contains(first) else { return nil }
            let closed = "\(Self.withoutComment(value))\(first)"
            sentence = "the value has no closing quote; write \(example(closed))"
            self.repaired = repaired(closed)
            return
        }
        let bare = Self.withoutComment(value)
        guard !bare.isEmpty, !"[{".contains(first), !Self.isValue(bare) else { return nil }
        if let flag = Self.flags[bare.lowercased()] {
            sentence = "\(bare) is neither true nor false; write \(example(flag))"
            self.repaired = repaired(flag)
            return
        }
        let inner = bare.last == "\"" ? bare.dropLast() : bare[...]
        guard !inner.contains("\"") else { return nil }
        let quoted = "\"\(inner)\""
        let what =
            isSecret ? "the value" : bare.count <= 64 && inner.count == bare.count ? oneLine(bare) : "the value"
        sentence =
            inner.count == bare.count
            ? "\(what) is not in quotes; write \(example(quoted))"
            : "the value has no opening quote; write \(example(quoted))"
        self.repaired = repaired(quoted)
    }

    /// The quote that a value, or the list that it is, begins or ends with; nil for another character.
    private static func typographicQuote(of value: Substring) -> Character? {
        let inner = value.drop { "[{ ".contains($0) }
        let quotes = doubleQuotes.union(singleQuotes)
        return [inner.first, inner.last { !"]} ,".contains($0) }].compactMap { $0 }.first(where: quotes.contains)
    }

    /// Whether TOML takes it without quotes. A number begins with 0 only if it is less than 1.
    private static func isValue(_ bare: String) -> Bool {
        let digits = bare.drop { $0 == "-" || $0 == "+" }
        let isDate = bare.prefix(5).last == "-" && bare.prefix(4).allSatisfy(\.isNumber)
        let hasLeadingZero = digits.first == "0" && digits.dropFirst().first?.isNumber == true
        return bare == "true" || bare == "false" || isDate || Double(bare) != nil && !hasLeadingZero
    }

    /// Up to the first # that follows a blank.
    private static func withoutComment(_ value: Substring) -> String {
        var previous: Character = " "
        var end = value.endIndex
        for index in value.indices {
            if value[index] == "#", previous == " " || previous == "\t" {
                end = index
                break
            }
            previous = value[index]
        }
        return String(trimmed(value[..<end]))
    }

    private static func trimmed(_ text: Substring) -> Substring {
        var text = text.drop { $0 == " " || $0 == "\t" }
        while let last = text.last, last == " " || last == "\t" || last == "\r" { text.removeLast() }
        return text
    }
}
