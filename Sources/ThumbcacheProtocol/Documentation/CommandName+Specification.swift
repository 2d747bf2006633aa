/// Every command there is.
enum CommandName: Int, CaseIterable {
    case get, mget, put, purge, stat
    case login, logout, users
    case hello, ping, echo, quit, reset, select, client
    case command, info

    private static let words = allCases.map { Word($0.name) }
    private static let specifications = allCases.map(\.described)
    private static let counts = specifications.map(\.counts)

    init?(_ word: Word) {
        guard let index = Self.words.firstIndex(of: word) else { return nil }
        self.init(rawValue: index)
    }

    /// In lower case.
    var name: String { "\(self)" }

    /// What this command takes: by this its arguments are counted, its errors worded and COMMAND answered.
    var specification: CommandSpecification { Self.specifications[rawValue] }

    /// How many arguments it may have, with the name. Looked at for each request.
    var counts: ClosedRange<Int> { Self.counts[rawValue] }

    private var described: CommandSpecification {
        func takes(_ summary: String, _ group: String, _ flags: [String], _ arguments: CommandArgument...)
            -> CommandSpecification
        { CommandSpecification(name: name, summary: summary, group: group, flags: flags, arguments: arguments) }
        let connection = ["noscript", "loading", "stale", "fast"]
        let server = ["loading", "stale"]
        return switch self {
        case .get:
            takes(
                "Returns an image, from the cache or else from the user's origin", "images", ["readonly"],
                .string("user"), .string("profile"), .size, .option("URL", "url"), .wait, .flag("CACHED"),
                .option("IFNOT", "digest"), .flag("META"))
        case .mget:
            takes(
                "Returns several images, downloading side by side those that are missing", "images", ["readonly"],
                .string("user"), .integer("count"), .string("profile").multiple, .size, .wait, .flag("CACHED"))
        case .put:
            takes(
                "Stores an image that the client has", "images", ["write", "denyoom"],
                .string("user"), .string("profile"), .string("image"), .size, .option("TTL", "seconds", .integer))
        case .purge:
            takes(
                "Removes the images of a user, or those of some profiles; the user stays logged in", "images",
                ["write"],
                .target, .block("profiles", .integer("count"), .string("profile").multiple).optional, .uid)
        case .stat:
            takes(
                "Says what is held of a user, or of one profile", "images", ["readonly"],
                .string("user"), .block("slot", .string("profile"), .size).optional)
        case .login:
            takes(
                "Opens the cache of a user", "login", ["write", "denyoom"],
                .string("user"), .option("SESSION", "id"), .flag("HOLD"), .option("ORIGIN", "name"),
                .option("TOKEN", "token"), .option("REFRESH", "token"))
        case .logout:
            takes(
                "Ends a session of a user; with the last one, or without SESSION, ends the user's cache", "login",
                ["write"], .target, .option("SESSION", "id"), .uid)
        case .users: takes("Returns the users of the caller's uid that are logged in", "login", ["readonly"])
        case .hello:
            takes(
                "Says who the server is, and switches the version of the protocol", "connection", connection,
                .block(
                    "arguments", .integer("version"),
                    .block("auth", token: "AUTH", .string("name"), .string("password")).optional,
                    .option("SETNAME", "name")
                ).optional)
        case .ping:
            takes("Answers PONG, or the message", "connection", connection, .string("message").optional)
        case .echo: takes("Answers the message", "connection", connection, .string("message"))
        case .quit: takes("Closes the connection", "connection", connection)
        case .reset: takes("Takes the connection back to how it began", "connection", connection)
        case .select: takes("Does nothing: there is one database", "connection", connection, .integer("index"))
        case .client: clientSpecification
        case .command: commandSpecification
        case .info:
            takes("Returns figures of the server as text", "server", server, .string("section").optional.multiple)
        }
    }

    private var clientSpecification: CommandSpecification {
        func part(_ name: String, _ summary: String, _ arguments: CommandArgument...) -> CommandSpecification {
            CommandSpecification(
                name: "client|\(name)", summary: summary, group: "connection", flags: ["noscript", "loading", "stale"],
                arguments: arguments)
        }
        return CommandSpecification(
            name: "client", summary: "Commands about the connection", group: "connection", flags: [],
            subcommands: [
                part("id", "Returns the number of the connection"),
                part("getname", "Returns the name of the connection"),
                part("setname", "Names the connection", .string("name")),
                part(
                    "setinfo", "Says which library the client uses",
                    .oneOf("attribute", .word("LIB-NAME", "lib-name"), .word("LIB-VER", "lib-ver")),
                    .string("value")),
            ], mayStandAlone: false)
    }

    private var commandSpecification: CommandSpecification {
        func part(_ name: String, _ summary: String, _ arguments: CommandArgument...) -> CommandSpecification {
            CommandSpecification(
                name: "command|\(name)", summary: summary, group: "server", flags: ["loading", "stale"],
                arguments: arguments)
        }
        let names = CommandArgument.string("name").optional.multiple
        return CommandSpecification(
            name: "command", summary: "Returns what commands there are", group: "server", flags: ["loading", "stale"],
            subcommands: [
                part("count", "Returns how many commands there are"),
                part("info", "Returns the shape of commands", names),
                part("docs", "Returns the documentation of commands", names),
            ])
    }
}

extension CommandArgument {
    /// `user|*`
    fileprivate static var target: CommandArgument { .oneOf("target", .string("user"), .word("*", "all")) }
    fileprivate static var size: CommandArgument { .option("SIZE", "px", .integer) }
    fileprivate static var wait: CommandArgument { .option("WAIT", "ms", .integer) }
    fileprivate static var uid: CommandArgument { .option("UID", "uid", .integer) }
}
