/// The contents of a configuration file.
struct Settings {
    /// A TOML value.
    enum Value: ExpressibleByStringLiteral, ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral,
        ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral
    {
        case string(String)
        case integer(Int)
        case boolean(Bool)
        case array([Value])
        case table([String: Value])

        init(stringLiteral text: String) { self = .string(text) }
        init(integerLiteral number: Int) { self = .integer(number) }
        init(booleanLiteral isTrue: Bool) { self = .boolean(isTrue) }
        init(arrayLiteral elements: Value...) { self = .array(elements) }

        var toml: String {
            switch self {
            case .string(let text): "\"\(text)\""
            case .integer(let number): "\(number)"
            case .boolean(let isTrue): "\(isTrue)"
            case .table(let keys): "{ " + keys.map { "\($0) = \($1.toml)" }.sorted().joined(separator: ", ") + " }"
            case .array(let elements): "[" + elements.map(\.toml).joined(separator: ", ") + "]"
            }
        }
    }

    private var tables: [String: [String: Value]] = [:]

    subscript(table: String, key: String) -> Value? {
        get { tables[table]?[key] }
        set { tables[table, default: [:]][key] = newValue }
    }

    /// Adds an origin on a loopback address.
    mutating func setOrigin(_ url: String, name: String = "default") {
        self["origins.\(name)", "url"] = .string(url)
        self["origins.\(name)", "allow-private-addresses"] = true
    }

    var toml: String {
        tables.sorted { $0.key < $1.key }.map { table, keys in
            let lines = keys.sorted { $0.key < $1.key }.map { "\($0.key) = \($0.value.toml)\n" }.joined()
            return (table.isEmpty ? "" : "[\(table)]\n") + lines + "\n"
        }.joined()
    }
}
