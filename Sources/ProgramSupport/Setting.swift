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
    let number: Number?

    struct Number: Sendable {
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
