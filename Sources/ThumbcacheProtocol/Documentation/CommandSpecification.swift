/// The arguments of a command, for COMMAND and for error messages.
struct CommandSpecification: Sendable {
    /// The name in lower case; of a subcommand as `client|id`.
    let name: String
    let summary: String
    let group: String
    /// Command flags of Redis.
    let flags: [String]
    var arguments: [CommandArgument] = []
    var subcommands: [CommandSpecification] = []
    /// Whether the command is valid without a subcommand.
    var mayStandAlone = true

    private var words: [String] { name.split(separator: "|").map { $0.uppercased() } }

    /// The number of arguments including the name; if negative, its absolute value is the minimum.
    var arity: Int {
        let least = words.count + arguments.count { !$0.isOptional } + (mayStandAlone ? 0 : 1)
        let isExact = subcommands.isEmpty && !arguments.contains { $0.isOptional || $0.isMultiple }
        return isExact ? least : -least
    }

    /// The allowed number of arguments, including the name. It is open-ended if there are options, whose parser checks
    /// the rest.
    var counts: ClosedRange<Int> {
        let isOpen =
            !subcommands.isEmpty || arguments.contains { $0.isMultiple || $0.kind == .block || $0.token != nil }
        return abs(arity)...(isOpen ? .max : words.count + arguments.count)
    }

    /// The syntax, such as `GET user profile [SIZE px]`.
    var syntax: String {
        let choice = subcommands.map(\.syntax).map { $0.drop { $0 != " " }.dropFirst() }.joined(separator: "|")
        return (words + arguments.map(\.syntax) + (choice.isEmpty ? [] : [choice])).joined(separator: " ")
    }

    var options: [String] { arguments.flatMap(\.tokens) }
}

/// An argument or group of arguments, with the terms of COMMAND DOCS.
struct CommandArgument: Sendable {
    enum Kind: String, Sendable {
        case string, integer
        case pureToken = "pure-token"
        /// One of ``CommandArgument/arguments``.
        case oneOf = "oneof"
        /// All of ``CommandArgument/arguments``, in order.
        case block
    }

    let name: String
    let kind: Kind
    /// The word before the value.
    var token: String?
    var arguments: [CommandArgument] = []
    var isOptional = false
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

    /// The option names in it. `*` is a value, and so are alternatives after a token.
    var tokens: [String] {
        if kind == .oneOf, let token { return [token] }
        return (token.map { $0 == "*" ? [] : [$0] } ?? []) + arguments.flatMap(\.tokens)
    }

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
