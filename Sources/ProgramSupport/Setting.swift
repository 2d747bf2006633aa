import LinuxSupport

/// One key of a configuration: its name, its values and the property that holds them. A program declares its keys in
/// one list of settings, which reading, unknown keys and reloads use.
public struct Setting<Root>: Sendable {
    /// The key relative to `Root`, as in `limits.image`.
    public let name: String
    /// Whether a reload applies a change.
    public let isReloadable: Bool
    /// Settings of the same list that limit this one. A setting with bounds of its own precedes those it limits.
    public let bounds: [SettingBound]
    /// Reads a value into the property.
    public let read: @Sendable (TOMLNode, inout Root) throws(SettingError) -> Void
    /// See ``SettingParser/caution``.
    public let caution: @Sendable (TOMLNode) -> String?
    /// Copies the value from one root into another.
    public let copy: @Sendable (Root, inout Root) -> Void
    /// nil for values that are not numbers.
    fileprivate let number: Number?

    fileprivate struct Number: Sendable {
        let amount: @Sendable (Root) -> Int
        let set: @Sendable (Int, inout Root) -> Void
        let text: @Sendable (Int) -> String
    }

    public init<Value: Sendable>(
        _ name: String, _ property: any WritableKeyPath<Root, Value> & Sendable, _ parser: SettingParser<Value>,
        _ bounds: [SettingBound] = [], isReloadable: Bool = false
    ) {
        (self.name, self.isReloadable, self.bounds) = (name, isReloadable, bounds)
        self.read = { node, root throws(SettingError) in root[keyPath: property] = try parser.read(node) }
        self.caution = parser.caution
        self.copy = { $1[keyPath: property] = $0[keyPath: property] }
        self.number = parser.number.map { number in
            Number(
                amount: { number.amount($0[keyPath: property]) }, set: { $1[keyPath: property] = number.value($0) },
                text: number.text)
        }
    }
}

/// A setting that is the upper bound of another one.
public struct SettingBound: Sendable {
    public let name: String
    /// The minimum difference between the two.
    public var margin = 0
    /// Whether the bound is raised if it has its default.
    public var isRaised = false

    public static func atMost(_ name: String, raisingIt: Bool = false) -> Self {
        Self(name: name, isRaised: raisingIt)
    }
    public static func below(_ name: String) -> Self { Self(name: name, margin: 1) }
}

/// Reads a table according to a list of settings, and collects all errors.
public struct SettingReader<Root> {
    public let settings: [Setting<Root>]
    /// The prefix of keys in messages, as in `origins.default.`; empty for none.
    public var prefix: String
    /// A top-level table that the caller reads.
    public var ignoring: String?
    /// The document that lists all keys.
    public var manual: String
    public private(set) var problems: [ConfigurationError.Problem] = []
    /// Valid values that are probably mistakes.
    public private(set) var warnings: [ConfigurationError.Problem] = []
    /// Names of the settings and sections in the table.
    public private(set) var found: Set<String> = []

    public init(
        settings: [Setting<Root>], prefix: String = "", ignoring: String? = nil, manual: String = "thumbcached.toml(5)"
    ) {
        (self.settings, self.prefix, self.ignoring, self.manual) = (settings, prefix, ignoring, manual)
    }

    /// Reads a whole file. Lines that are not TOML are problems, like invalid values. If the meaning of such a line is
    /// unclear, no value is read.
    /// - Returns: the document; empty if no value was read.
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
                    for flaw in error.flaws { addProblem(name + flaw.keySuffix, flaw.sentence) }
                }
            } else if settings.contains(where: { $0.name.hasPrefix(name + ".") }) {
                if case .table(let inner) = node {
                    found.insert(name)
                    read(inner, under: name + ".", into: &root)
                } else {
                    addProblem(name, "is \(node.typeName), but must be a section: write [\(prefix)\(name)]")
                }
            } else {
                addProblem(name, unknownKey(name))
            }
        }
    }

    /// Adapts defaults to their bounds, so that `quota = "16MiB"` alone is a valid configuration, and reports values of
    /// the file that contradict each other. A value in the file is never changed.
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
                    addProblem(
                        setting.name,
                        "\(number.text(amount)) is \(words) than \(prefix)\(bound.name) (\(limit)): "
                            + "lower the one or raise the other")
                }
            }
        }
    }

    public mutating func addProblem(_ name: String, _ sentence: String) {
        problems.append(.init(key: prefix + name, sentence: sentence))
    }

    private func unknownKey(_ name: String) -> String {
        let sections = settings.compactMap { $0.name.split(separator: ".").dropLast().joined(separator: ".") }
        let known = Set(settings.map(\.name) + sections.filter { !$0.isEmpty } + [ignoring].compactMap { $0 })
        guard let close = closestWord(to: name, among: known) else {
            return "unknown key; \(manual) lists all keys"
        }
        return "unknown key; did you mean \(prefix)\(close)?"
    }
}

/// Returns the text of a configuration file; nil if it is missing and may be. A file of more than 1 MiB is an error,
/// since it was named by mistake.
public func readConfiguration(_ path: String, mayBeMissing: Bool) throws(ConfigurationError) -> String? {
    do throws(PlainFileError) {
        return try readTextFile(path, limit: 1 << 20)
    } catch {
        if error.isMissing, mayBeMissing { return nil }
        throw ConfigurationError(file: path, problems: [.init(key: nil, sentence: "\(error)")])
    }
}

public struct ConfigurationError: Error, Equatable, CustomStringConvertible {
    /// The path that was given; empty if no file was read.
    public let file: String
    /// At least one.
    public let problems: [Problem]

    /// - Parameter problems: if a line was repaired and its value is invalid, too, only the latter problem is kept.
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
        /// Line in the file, from 1; nil unless the line is not TOML.
        public var line: Int?
        /// Full key such as `origins.default.timeout`; nil if the problem concerns the file.
        public var key: String?
        /// The problem and what would be valid.
        public var sentence: String

        public init(line: Int? = nil, key: String?, sentence: String) {
            (self.line, self.key, self.sentence) = (line, key, sentence)
        }
    }

    /// One line for each problem: `FILE:LINE: KEY: SENTENCE`, without unknown parts.
    public var description: String {
        problems.map { problem in
            let line = problem.line.map { ":\($0)" } ?? ""
            return [(file.isEmpty ? "configuration" : file) + line, problem.key, problem.sentence].compactMap { $0 }
                .joined(separator: ": ")
        }.joined(separator: "\n")
    }
}

/// An invalid value. ``SettingReader`` adds the key to make a ``ConfigurationError/Problem`` of each flaw.
public struct SettingError: Error, Equatable {
    public let flaws: [Flaw]

    public init(_ flaws: [Flaw]) { self.flaws = flaws }

    public init(_ sentence: String) { self.init([Flaw(sentence)]) }

    public struct Flaw: Equatable, Sendable {
        public let sentence: String
        /// Appended to the key: `[2]` for the third element of a list.
        public let keySuffix: String

        public init(_ sentence: String, keySuffix: String = "") {
            (self.sentence, self.keySuffix) = (sentence, keySuffix)
        }
    }
}
