import LinuxSupport

/// One key of the configuration: its name, what values it takes and where they go.
///
/// Only the list of all settings knows the names: reading, unknown keys and what a reload compares go by it.
public struct Setting<Root>: Sendable {
    /// Relative to `Root`, as in `limits.image`.
    public let name: String
    /// Whether a reload takes over a change.
    public let isReloadable: Bool
    /// What it is bounded by, settings of the same list that have bounds of their own before it.
    public let bounds: [SettingBound]
    /// Reads a value into its field. Throws a ``SettingError``.
    public let read: @Sendable (TOMLNode, inout Root) throws(SettingError) -> Void
    /// See ``SettingParser/caution``.
    public let caution: @Sendable (TOMLNode) -> String?
    /// Copies the value from one root into another.
    public let copy: @Sendable (Root, inout Root) -> Void
    /// nil for what is no number.
    fileprivate let number: Number?

    fileprivate struct Number: Sendable {
        let amount: @Sendable (Root) -> Int
        let set: @Sendable (Int, inout Root) -> Void
        let text: @Sendable (Int) -> String
    }

    public init<Value: Sendable>(
        _ name: String, _ field: any WritableKeyPath<Root, Value> & Sendable, _ kind: SettingParser<Value>,
        _ bounds: [SettingBound] = [], isReloadable: Bool = false
    ) {
        self.name = name
        self.isReloadable = isReloadable
        self.bounds = bounds
        self.read = { node, root throws(SettingError) in root[keyPath: field] = try kind.read(node) }
        self.caution = kind.caution
        self.copy = { $1[keyPath: field] = $0[keyPath: field] }
        self.number = kind.number.map { number in
            Number(
                amount: { number.amount($0[keyPath: field]) }, set: { $1[keyPath: field] = number.value($0) },
                text: number.text)
        }
    }
}

/// Another number that a number cannot be more than.
public struct SettingBound: Sendable {
    public let name: String
    /// What the number must stay below the other by.
    public var margin = 0
    /// Whether the other one, where only its default is in the way, gives way.
    public var isRaised = false

    public static func atMost(_ name: String, raisingIt: Bool = false) -> Self {
        Self(name: name, isRaised: raisingIt)
    }
    public static func below(_ name: String) -> Self { Self(name: name, margin: 1) }
}

/// Reads a table by a list of settings, and collects all that is wrong.
public struct SettingReader<Root> {
    public let settings: [Setting<Root>]
    /// What stands before the names of the settings in messages: `origins.default.`, or nothing.
    public var prefix: String
    /// A top-level table that somebody else reads.
    public var ignoring: String?
    /// Where all keys are listed.
    public var manual: String
    public private(set) var problems: [ConfigurationError.Problem] = []
    /// What is allowed, and probably a mistake.
    public private(set) var warnings: [ConfigurationError.Problem] = []
    /// Names of the settings and sections that the table has.
    public private(set) var found: Set<String> = []

    public init(
        settings: [Setting<Root>], prefix: String = "", ignoring: String? = nil, manual: String = "thumbcached.toml(5)"
    ) {
        self.settings = settings
        self.prefix = prefix
        self.ignoring = ignoring
        self.manual = manual
    }

    /// Reads a whole file. What is not TOML becomes a problem, as wrong values do; where it cannot be told what was
    /// meant, no value is read.
    /// - Returns: the document; empty where no value was read.
    @discardableResult
    public mutating func read(text: String, into root: inout Root) -> [String: TOMLNode] {
        let document = TOMLRepair(text)
        problems += document.problems
        guard document.isWhole else { return [:] }
        read(document.table, into: &root)
        return document.table
    }

    public mutating func read(_ table: [String: TOMLNode], under path: String = "", into root: inout Root) {
        for (key, node) in table.sorted(by: { $0.key < $1.key }) where !(path.isEmpty && key == ignoring) {
            let name = path + keyText(key)
            if let setting = settings.first(where: { $0.name == name }) {
                found.insert(name)
                do throws(SettingError) {
                    try setting.read(node, &root)
                    if let sentence = setting.caution(node) {
                        warnings.append(.init(key: prefix + name, sentence: sentence))
                    }
                } catch {
                    for flaw in error.flaws { complain(name + flaw.keySuffix, flaw.sentence) }
                }
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

    /// Brings the defaults into line with what is set, and names what is set and contradicts itself.
    ///
    /// A default gives way, so that `quota = "16MiB"` alone is a whole configuration; a value that somebody wrote
    /// is never changed behind their back.
    public mutating func reconcile(_ root: inout Root) {
        for setting in settings {
            for bound in setting.bounds {
                guard let number = setting.number, let other = settings.first(where: { $0.name == bound.name })?.number
                else { continue }
                let (amount, most) = (number.amount(root), other.amount(root) - bound.margin)
                let isDefault = !found.contains(bound.name)
                if amount <= most { continue }
                if !found.contains(setting.name) {
                    number.set(most, &root)
                } else if isDefault, bound.isRaised {
                    other.set(amount, &root)
                } else {
                    let words = bound.margin == 0 ? "more" : "not less"
                    let limit = other.text(other.amount(root)) + (isDefault ? ", the default" : "")
                    complain(
                        setting.name,
                        "\(number.text(amount)) is \(words) than \(prefix)\(bound.name) (\(limit)): "
                            + "lower the one or raise the other")
                }
            }
        }
    }

    public mutating func complain(_ name: String, _ sentence: String) {
        problems.append(.init(key: prefix + name, sentence: sentence))
    }

    private func unknownKey(_ name: String) -> String {
        let sections = settings.compactMap { $0.name.split(separator: ".").dropLast().joined(separator: ".") }
        let known = Set(settings.map(\.name) + sections.filter { !$0.isEmpty } + [ignoring].compactMap { $0 })
        guard let close = closestWord(to: name, among: known) else {
            return "unknown key; \(manual) lists all that there are"
        }
        return "unknown key; did you mean \(prefix)\(close)?"
    }
}

// MARK: What is wrong

/// A configuration that cannot be used: everything that is wrong with it, so that one look mends it all.
public struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    /// Path of the file as it was named; empty when no file was read.
    public let file: String
    /// At least one.
    public let problems: [Problem]

    /// - Parameter problems: of a line that was repaired and whose value is wrong as well, only the latter is kept.
    public init(file: String, problems: [Problem]) {
        self.file = file
        let ofValues = Set(problems.filter { $0.line == nil }.compactMap(\.key))
        let lines = problems.reduce(into: [String: Int]()) { lines, problem in
            if let key = problem.key, let line = problem.line { lines[key] = line }
        }
        self.problems = problems.filter { $0.line == nil || !ofValues.contains($0.key ?? "") }.map { problem in
            let line = problem.line ?? problem.key.flatMap { lines[$0] }
            return Problem(line: line, key: problem.key, sentence: problem.sentence)
        }.sorted { $0.line ?? .max < $1.line ?? .max }
    }

    public struct Problem: Error, Equatable {
        /// Line in the file, from 1; known only of what is no TOML.
        public var line: Int?
        /// Full name such as `origins.default.timeout`; nil where the fault is not in a key.
        public var key: String?
        /// What is wrong and what would be right.
        public var sentence: String

        public init(line: Int? = nil, key: String?, sentence: String) {
            (self.line, self.key, self.sentence) = (line, key, sentence)
        }
    }

    /// One line for each problem: `FILE:LINE: KEY: SENTENCE`, without the parts that are not known.
    public var description: String {
        problems.map { problem in
            let line = problem.line.map { ":\($0)" } ?? ""
            return [(file.isEmpty ? "configuration" : file) + line, problem.key, problem.sentence].compactMap { $0 }
                .joined(separator: ": ")
        }.joined(separator: "\n")
    }
}

/// What a value has against it: one thing, but for lists and tables. Whoever knows the key and the file makes a
/// ``ConfigurationError/Problem`` of each.
public struct SettingError: Error, Equatable {
    /// At least one.
    public let flaws: [Flaw]

    public init(_ flaws: [Flaw]) { self.flaws = flaws }

    public init(_ sentence: String) { self.init([Flaw(sentence)]) }

    public struct Flaw: Equatable, Sendable {
        public let sentence: String
        /// What to add to the key's name: `[2]` for the third element of a list.
        public let keySuffix: String

        public init(_ sentence: String, keySuffix: String = "") {
            (self.sentence, self.keySuffix) = (sentence, keySuffix)
        }
    }
}
