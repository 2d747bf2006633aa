import Logging

/// What values a key takes: reads one from a document, or says what is wrong with it and what would be right.
struct SettingKind<Value>: Sendable {
    let read: @Sendable (TOMLNode) throws(SettingError) -> Value

    /// The same values with a further rule: `check` returns what is wrong, nil where nothing is.
    func checked(_ check: @escaping @Sendable (Value) -> String?) -> SettingKind {
        SettingKind { node throws(SettingError) in
            let value = try read(node)
            if let sentence = check(value) { throw SettingError(sentence) }
            return value
        }
    }

    /// The same values in another type. `transform` throws for those that it has none for.
    func map<Other>(
        _ transform: @escaping @Sendable (Value) throws(SettingError) -> Other
    ) -> SettingKind<Other> {
        SettingKind<Other> { node throws(SettingError) in try transform(try read(node)) }
    }
}

extension SettingKind where Value == Bool {
    static var flag: Self {
        Self { node throws(SettingError) in
            guard case .boolean(let value) = node else {
                throw SettingError("is \(node.typeName); write true or false, without quotes")
            }
            return value
        }
    }
}

extension SettingKind where Value == Int {
    static func count(_ range: ClosedRange<Int>) -> Self {
        Self { node throws(SettingError) in
            guard case .integer(let value) = node else {
                throw SettingError(
                    "is \(node.typeName); write a whole number without quotes, as in \(range.lowerBound)")
            }
            guard range.contains(value) else {
                throw SettingError("\(value) is out of range: \(range.lowerBound) to \(range.upperBound) can be")
            }
            return value
        }
    }

    /// Bytes.
    static func size(atLeast least: Int, atMost most: Int = Int.max, zero isZeroAllowed: Bool = false) -> Self {
        Self { node throws(SettingError) in
            let text = try string(node, as: "a size in quotes with its unit, as in \"64MiB\"")
            guard let bytes = ByteSize.parse(text) else {
                throw SettingError(
                    "\(quoted(text)) is no size: write a whole number with B, KiB, MiB or GiB, as in \"64MiB\"")
            }
            if bytes == 0, isZeroAllowed { return 0 }
            guard bytes >= least else {
                let orNone = isZeroAllowed ? ", or \"0\" for none" : ""
                throw SettingError("\(quoted(text)) is too little: at least \(ByteSize.format(least))\(orNone)")
            }
            guard bytes <= most else {
                throw SettingError("\(quoted(text)) is too much: at most \(ByteSize.format(most))")
            }
            return bytes
        }
    }

    /// Milliseconds.
    static func time(atLeast least: Int, atMost most: Int) -> Self {
        Self { node throws(SettingError) in
            let text = try string(node, as: "a time in quotes with its unit, as in \"2s\"")
            guard let milliseconds = TimeSpan.parse(text) else {
                throw SettingError(
                    "\(quoted(text)) is no time: write a whole number with ms, s, m, h or d, as in \"2s\"")
            }
            guard milliseconds >= least else {
                throw SettingError("\(quoted(text)) is too short: at least \(TimeSpan.format(least))")
            }
            guard milliseconds <= most else {
                throw SettingError("\(quoted(text)) is too long: at most \(TimeSpan.format(most))")
            }
            return milliseconds
        }
    }
}

extension SettingKind where Value == Int64 {
    static func milliseconds(atLeast least: Int, atMost most: Int) -> Self {
        SettingKind<Int>.time(atLeast: least, atMost: most).map { value throws(SettingError) in Int64(value) }
    }

    /// Whole seconds, from none to ten years: ages are counted in seconds.
    static var seconds: Self {
        SettingKind<Int>.time(atLeast: 0, atMost: 3650 * 86_400_000).map { value throws(SettingError) in
            guard value % 1000 == 0 else {
                throw SettingError(
                    "\"\(TimeSpan.format(value))\" is not a whole number of seconds, and ages are counted so")
            }
            return Int64(value / 1000)
        }
    }
}

extension SettingKind where Value == String {
    static var text: Self {
        Self { node throws(SettingError) in try string(node, as: "a text in quotes") }
    }

    /// An absolute path.
    static var path: Self {
        Self { node throws(SettingError) in
            let path = try string(node, as: "a path in quotes")
            guard path.utf8.first == UInt8(ascii: "/") else {
                throw SettingError("\(quoted(path)) is not an absolute path: it must begin with /")
            }
            return path
        }
    }

    /// What begins with http:// or https:// and goes on. The value may hold a password: it is not repeated.
    static var webURL: Self {
        text.checked { url in
            isWebURL(url) ? nil : "is not a URL that begins with http:// or https:// and names a host"
        }
    }
}

extension SettingKind {
    /// A value that may be left out; never read as nil.
    func optional() -> SettingKind<Value?> {
        map { value throws(SettingError) in value }
    }

    /// One of a few words.
    static func word(_ words: [(String, Value)]) -> SettingKind where Value: Sendable {
        let list = words.map { "\"\($0.0)\"" }.joined(separator: ", ")
        return SettingKind { node throws(SettingError) in
            let text = try string(node, as: "one of \(list)")
            guard let match = words.first(where: { $0.0 == text }) else {
                throw SettingError("\(quoted(text)) is none of \(list)")
            }
            return match.1
        }
    }

    static func list<Element>(of element: SettingKind<Element>, such example: String) -> SettingKind
    where Value == [Element] {
        SettingKind { node throws(SettingError) in
            guard case .array(let nodes) = node else {
                throw SettingError("is \(node.typeName); write a list, as in \(example)")
            }
            var values: [Element] = []
            for (index, node) in nodes.enumerated() {
                do throws(SettingError) {
                    values.append(try element.read(node))
                } catch {
                    var error = error
                    error.keySuffix = "[\(index)]" + error.keySuffix
                    throw error
                }
            }
            return values
        }
    }
}

private func string(_ node: TOMLNode, as expected: String) throws(SettingError) -> String {
    guard case .string(let text) = node else { throw SettingError("is \(node.typeName); write \(expected)") }
    return text
}

func isWebURL(_ text: String) -> Bool {
    for scheme in ["http://", "https://"] where text.lowercased().hasPrefix(scheme) {
        return !(text.dropFirst(scheme.count).first.map { "/?#".contains($0) } ?? true)
    }
    return false
}
