import ThumbcacheProtocol

/// A document in which lines that are not TOML are reported and repaired, so that all mistakes are found at once.
struct TOMLRepair {
    /// Mistakes that are reported in one document.
    private static let most = 20

    private(set) var table: [String: TOMLNode] = [:]
    private(set) var problems: [ConfigurationError.Problem] = []
    /// Whether no line was left out.
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
                    // The parser reports a line that was already left out.
                    if !isFirst, line.isEmpty { return }
                    // A value that spans lines cannot be left out line by line.
                    guard !line.contains(where: { "[]{}".contains($0) }),
                        !line.contains("\"\"\""), !line.contains("'''")
                    else { return }
                    lines[index] = ""
                }
            }
        }
    }

    /// Returns the section that contains a line, with a final dot; empty for none.
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

/// A common mistake in a line `key = value` that is not TOML.
struct TOMLMistake {
    let key: String
    let sentence: String
    /// The line as probably intended.
    let repaired: String

    private static let doubleQuotes: Set<Character> = ["“", "”", "„", "‟", "«", "»"]
    private static let singleQuotes: Set<Character> = ["‘", "’", "‚", "‛"]
    /// Words for true and false in other file formats.
    private static let flags = [
        "yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false",
    ]

    /// Returns nil if no common mistake explains the line.
    init?(_ line: Substring) {
        guard let equals = line.firstIndex(of: "=") else { return nil }
        let key = Self.trimmed(line[..<equals])
        guard !key.isEmpty, key.utf8.count <= 128,
            key.utf8.allSatisfy({ isWordByte($0) || $0 == UInt8(ascii: ".") })
        else { return nil }
        self.key = String(key)
        let value = Self.trimmed(line[line.index(after: equals)...])
        // It may contain a password.
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
            // A second quote would close the value, so the mistake is another one.
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

    /// Returns the typographic quote at the beginning or end of a value or list.
    private static func typographicQuote(of value: Substring) -> Character? {
        let inner = value.drop { "[{ ".contains($0) }
        let quotes = doubleQuotes.union(singleQuotes)
        return [inner.first, inner.last { !"]} ,".contains($0) }].compactMap { $0 }.first(where: quotes.contains)
    }

    /// Whether the text is a TOML value without quotes. A number cannot have a leading zero.
    private static func isValue(_ bare: String) -> Bool {
        let digits = bare.drop { $0 == "-" || $0 == "+" }
        let isDate = bare.prefix(5).last == "-" && bare.prefix(4).allSatisfy(\.isNumber)
        let hasLeadingZero = digits.first == "0" && digits.dropFirst().first?.isNumber == true
        return bare == "true" || bare == "false" || isDate || Double(bare) != nil && !hasLeadingZero
    }

    /// Returns the text up to the first # after a space.
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
