/// One key of the configuration: its name, what values it takes and where they go.
///
/// The list of all settings is the only place that knows the names: reading, the search for unknown keys and the
/// comparison at a reload go by it.
struct Setting<Root>: Sendable {
    /// Relative to `Root`, as in `limits.image`.
    let name: String
    /// Whether a reload takes over a change.
    let isReloadable: Bool
    /// Reads a value into its place. Throws a ``SettingError``.
    let read: @Sendable (TOMLNode, inout Root) throws(SettingError) -> Void
    let isEqual: @Sendable (Root, Root) -> Bool
    /// Copies the value from one root into another.
    let copy: @Sendable (Root, inout Root) -> Void

    init<Value: Equatable & Sendable>(
        _ name: String, _ place: any WritableKeyPath<Root, Value> & Sendable, _ kind: SettingKind<Value>,
        isReloadable: Bool = false
    ) {
        self.name = name
        self.isReloadable = isReloadable
        self.read = { node, root throws(SettingError) in root[keyPath: place] = try kind.read(node) }
        self.isEqual = { $0[keyPath: place] == $1[keyPath: place] }
        self.copy = { $1[keyPath: place] = $0[keyPath: place] }
    }
}

/// Reads a table by a list of settings, and collects all that is wrong.
struct SettingReader<Root> {
    let settings: [Setting<Root>]
    /// What stands before the names of the settings in messages: `origins.default.`, or nothing.
    let prefix: String
    /// Top-level tables that somebody else reads.
    var ignoring: Set<String> = []
    private(set) var problems: [ConfigurationError.Problem] = []
    /// Names of the settings that the table holds.
    private(set) var found: Set<String> = []

    init(_ settings: [Setting<Root>], prefix: String = "", ignoring: Set<String> = []) {
        self.settings = settings
        self.prefix = prefix
        self.ignoring = ignoring
    }

    mutating func read(_ table: [String: TOMLNode], into root: inout Root) {
        read(table, under: "", into: &root)
    }

    private mutating func read(_ table: [String: TOMLNode], under path: String, into root: inout Root) {
        for (key, node) in table.sorted(by: { $0.key < $1.key }) where !(path.isEmpty && ignoring.contains(key)) {
            let name = path + keyText(key)
            if let setting = settings.first(where: { $0.name == name }) {
                read(setting, node, into: &root)
            } else if settings.contains(where: { $0.name.hasPrefix(name + ".") }) {
                if case .table(let inner) = node {
                    found.insert(name)
                    read(inner, under: name + ".", into: &root)
                } else {
                    complain(name, "is \(node.typeName), but it is a section: write [\(prefix)\(name)]")
                }
            } else {
                complain(name, unknownKey(name))
            }
        }
    }

    private mutating func read(_ setting: Setting<Root>, _ node: TOMLNode, into root: inout Root) {
        found.insert(setting.name)
        do throws(SettingError) {
            try setting.read(node, &root)
        } catch {
            complain(setting.name + error.keySuffix, error.sentence)
        }
    }

    private mutating func complain(_ name: String, _ sentence: String) {
        problems.append(.init(key: prefix + name, sentence: sentence))
    }

    private func unknownKey(_ name: String) -> String {
        let sections = settings.compactMap { $0.name.split(separator: ".").dropLast().joined(separator: ".") }
        let known = Set(settings.map(\.name) + sections.filter { !$0.isEmpty } + ignoring)
        let close = known.map { (distance: editDistance(name, $0), name: $0) }.filter { $0.distance <= 2 }.min {
            $0 < $1
        }
        guard let close else { return "unknown key; thumbcached.toml(5) lists all that there are" }
        return "unknown key; did you mean \(prefix)\(close.name)?"
    }
}

/// A key as TOML writes it: bare where it can be, else in quotes.
func keyText(_ key: String) -> String {
    let isBare = !key.isEmpty && key.utf8.allSatisfy { isWordByte($0) }
    return isBare ? key : quoted(key)
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

/// How many letters must be inserted, removed or replaced to make one text of the other (Levenshtein).
func editDistance(_ left: String, _ right: String) -> Int {
    let right = Array(right.utf8)
    var row = Array(0...right.count)
    for (index, byte) in left.utf8.prefix(64).enumerated() {
        var diagonal = row[0]
        row[0] = index + 1
        for column in right.indices {
            let replaced = diagonal + (byte == right[column] ? 0 : 1)
            diagonal = row[column + 1]
            row[column + 1] = min(replaced, diagonal + 1, row[column] + 1)
        }
    }
    return row[right.count]
}
