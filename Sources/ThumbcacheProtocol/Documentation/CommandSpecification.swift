/// What a command takes, as COMMAND tells clients, and as errors tell whoever got it wrong.
struct CommandSpecification: Sendable {
    /// In lower case; of a subcommand `client|id`.
    let name: String
    let summary: String
    /// What it is listed under: `images`, `login`, `connection`, `server`.
    let group: String
    /// In the words of Redis.
    let flags: [String]
    var arguments: [CommandArgument] = []
    var subcommands: [CommandSpecification] = []
    /// Whether it may stand without one of its subcommands.
    var mayStandAlone = true

    private var words: [String] { name.split(separator: "|").map { $0.uppercased() } }

    /// Arguments with the name; negative: at least as many.
    var arity: Int {
        let least = words.count + arguments.count { !$0.isOptional } + (mayStandAlone ? 0 : 1)
        let isExact = subcommands.isEmpty && !arguments.contains { $0.isOptional || $0.isMultiple }
        return isExact ? least : -least
    }

    /// How many there may be, with the name. Whoever reads options sees for himself where they end.
    var counts: ClosedRange<Int> {
        let isOpen =
            !subcommands.isEmpty || arguments.contains { $0.isMultiple || $0.kind == .block || $0.token != nil }
        return abs(arity)...(isOpen ? .max : words.count + arguments.count)
    }

    /// How to write it: `GET user profile [SIZE px]` and so on.
    var syntax: String {
        let choice = subcommands.map(\.syntax).map { $0.drop { $0 != " " }.dropFirst() }.joined(separator: "|")
        return (words + arguments.map(\.syntax) + (choice.isEmpty ? [] : [choice])).joined(separator: " ")
    }

    /// The words of its options.
    var options: [String] { arguments.flatMap(\.tokens) }
}

/// One argument of a command, or a group of them, in the terms of COMMAND DOCS.
struct CommandArgument: Sendable {
    enum Kind: String, Sendable {
        case string, integer
        /// A word that stands for itself.
        case pureToken = "pure-token"
        /// One of ``CommandArgument/arguments``.
        case oneOf = "oneof"
        /// All of ``CommandArgument/arguments``, in order.
        case block
    }

    let name: String
    let kind: Kind
    /// The word that stands before the value.
    var token: String?
    var arguments: [CommandArgument] = []
    var isOptional = false
    /// May be there several times.
    var isMultiple = false

    var syntax: String {
        var text: String
        switch kind {
        case .string, .integer: text = name
        case .pureToken: text = ""
        case .oneOf: text = arguments.map(\.syntax).joined(separator: "|")
        case .block: text = arguments.map(\.syntax).joined(separator: " ")
        }
        if isMultiple { text += isOptional && token == nil ? " ..." : " [\(text) ...]" }
        if let token { text = text.isEmpty ? token : "\(token) \(text)" }
        return isOptional ? "[\(text)]" : text
    }

    /// The words of options in it. `*` is a value, not an option, and so is each of several that follow a word.
    var tokens: [String] {
        if kind == .oneOf, let token { return [token] }
        return (token.map { $0 == "*" ? [] : [$0] } ?? []) + arguments.flatMap(\.tokens)
    }

    // MARK: The ways to write one down

    static func string(_ name: String) -> CommandArgument { CommandArgument(name: name, kind: .string) }
    static func integer(_ name: String) -> CommandArgument { CommandArgument(name: name, kind: .integer) }
    static func word(_ token: String, _ name: String) -> CommandArgument {
        CommandArgument(name: name, kind: .pureToken, token: token)
    }
    static func oneOf(_ name: String, _ arguments: CommandArgument...) -> CommandArgument {
        CommandArgument(name: name, kind: .oneOf, arguments: arguments)
    }
    static func block(_ name: String, token: String? = nil, _ arguments: CommandArgument...) -> CommandArgument {
        CommandArgument(name: name, kind: .block, token: token, arguments: arguments)
    }

    /// `[TOKEN name]`
    static func option(_ token: String, _ name: String, _ kind: Kind = .string) -> CommandArgument {
        CommandArgument(name: name, kind: kind, token: token, isOptional: true)
    }

    /// `[TOKEN one|of|these]`
    static func words(_ token: String, _ words: [String]) -> CommandArgument {
        CommandArgument(
            name: token.lowercased(), kind: .oneOf, token: token, arguments: words.map { word($0, $0) },
            isOptional: true)
    }

    /// `[TOKEN]`
    static func flag(_ token: String) -> CommandArgument { option(token, token.lowercased(), .pureToken) }

    var optional: CommandArgument { with(\.isOptional) }
    var multiple: CommandArgument { with(\.isMultiple) }

    private func with(_ flag: WritableKeyPath<CommandArgument, Bool>) -> CommandArgument {
        var copy = self
        copy[keyPath: flag] = true
        return copy
    }
}
