import LinuxSupport

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
