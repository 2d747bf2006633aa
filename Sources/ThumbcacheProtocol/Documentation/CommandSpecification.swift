/// What a command takes, as COMMAND tells clients, and as errors tell whoever got it wrong.
public struct CommandSpecification: Sendable, Equatable {
    /// In lower case; of a subcommand `client|id`.
    public let name: String
    public let summary: String
    /// What it is listed under: `images`, `login`, `connection`, `server`.
    public let group: String
    /// Arguments with the name; negative: at least as many.
    public let arity: Int
    /// In the words of Redis.
    public let flags: [String]
    public let arguments: [CommandArgument]
    public let subcommands: [CommandSpecification]

    init(
        _ name: String, _ summary: String, group: String, arity: Int, flags: [String],
        _ arguments: [CommandArgument] = [], subcommands: [CommandSpecification] = []
    ) {
        self.name = name
        self.summary = summary
        self.group = group
        self.arity = arity
        self.flags = flags
        self.arguments = arguments
        self.subcommands = subcommands
    }

    /// How to write it: `GET user profile [SIZE px]` and so on.
    public var syntax: String {
        let words = name.split(separator: "|").map { $0.uppercased() }
        let choice = subcommands.map(\.syntax).map { $0.drop { $0 != " " }.dropFirst() }.joined(separator: "|")
        return (words + arguments.map(\.syntax) + (choice.isEmpty ? [] : [choice])).joined(separator: " ")
    }

    /// The words of its options.
    var options: [String] { arguments.flatMap(\.tokens) }
}

/// One argument of a command, or a group of them, in the terms of COMMAND DOCS.
public struct CommandArgument: Sendable, Equatable {
    public enum Kind: String, Sendable {
        case string, integer
        /// A word that stands for itself.
        case pureToken = "pure-token"
        /// One of ``CommandArgument/arguments``.
        case oneOf = "oneof"
        /// All of ``CommandArgument/arguments``, in order.
        case block
    }

    public let name: String
    public let kind: Kind
    /// The word that stands before the value.
    public var token: String?
    public var isOptional = false
    /// May be there several times.
    public var isMultiple = false
    public var arguments: [CommandArgument] = []

    init(_ name: String, _ kind: Kind, token: String? = nil, _ arguments: [CommandArgument] = []) {
        self.name = name
        self.kind = kind
        self.token = token
        self.arguments = arguments
    }

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

    /// The words of options in it. `*` is a value, not an option.
    var tokens: [String] {
        (token.map { $0 == "*" ? [] : [$0] } ?? []) + arguments.flatMap(\.tokens)
    }
}

/// The ways to write an argument down.
extension CommandArgument {
    static func string(_ name: String) -> CommandArgument { CommandArgument(name, .string) }
    static func integer(_ name: String) -> CommandArgument { CommandArgument(name, .integer) }
    static func block(_ name: String, _ arguments: CommandArgument...) -> CommandArgument {
        CommandArgument(name, .block, arguments)
    }

    /// `[TOKEN name]`
    static func option(_ token: String, _ name: String, _ kind: Kind = .string) -> CommandArgument {
        CommandArgument(name, kind, token: token).optional
    }

    /// `[TOKEN]`
    static func flag(_ token: String) -> CommandArgument {
        CommandArgument(token.lowercased(), .pureToken, token: token).optional
    }

    /// `user|*`
    static var target: CommandArgument {
        CommandArgument("target", .oneOf, [.string("user"), CommandArgument("all", .pureToken, token: "*")])
    }

    var optional: CommandArgument {
        var copy = self
        copy.isOptional = true
        return copy
    }

    var multiple: CommandArgument {
        var copy = self
        copy.isMultiple = true
        return copy
    }
}
