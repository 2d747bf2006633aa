extension CommandName {
    /// What this command takes. Costs a few allocations.
    public var specification: CommandSpecification {
        switch self {
        case .get:
            image(
                "Returns an image, from the cache or else from the user's origin", -3, ["readonly"],
                .string("user"), .string("profile"), .size, .option("URL", "url"), .wait, .flag("CACHED"),
                .option("IFNOT", "digest"), .flag("META"))
        case .mget:
            image(
                "Returns several images, downloading side by side those that are missing", -4, ["readonly"],
                .string("user"), .integer("count"), .string("profile").multiple, .size, .wait, .flag("CACHED"))
        case .put:
            image(
                "Stores an image that the client has", -4, ["write", "denyoom"],
                .string("user"), .string("profile"), .string("image"), .size, .option("TTL", "seconds", .integer))
        case .purge:
            image(
                "Removes the images of a user, or those of some profiles; the user stays logged in", -2, ["write"],
                .target, .block("profiles", .integer("count"), .string("profile").multiple).optional, .uid)
        case .stat:
            image(
                "Says what is held of a user, or of one profile", -2, ["readonly"],
                .string("user"), .block("slot", .string("profile"), .size).optional)
        case .login:
            session(
                "Opens the cache of a user", -2, ["write", "denyoom"],
                .string("user"), .option("SESSION", "id"), .flag("HOLD"), .option("ORIGIN", "name"),
                .option("TOKEN", "token"), .option("REFRESH", "token"))
        case .logout:
            session(
                "Ends a session of a user; with the last one, or without SESSION, ends the user's cache", -2, ["write"],
                .target, .option("SESSION", "id"), .uid)
        case .users: session("Returns the users of the caller's uid that are logged in", 1, ["readonly"])
        case .hello:
            connection(
                "Says who the server is, and switches the version of the protocol", -1,
                CommandArgument(
                    "arguments", .block,
                    [
                        .integer("version"),
                        CommandArgument("auth", .block, token: "AUTH", [.string("name"), .string("password")]).optional,
                        .option("SETNAME", "name"),
                    ]
                ).optional)
        case .ping: connection("Answers PONG, or the message", -1, .string("message").optional)
        case .echo: connection("Answers the message", 2, .string("message"))
        case .quit: connection("Closes the connection", 1)
        case .reset: connection("Takes the connection back to how it began", 1)
        case .select: connection("Does nothing: there is one database", 2, .integer("index"))
        case .client: clientSpecification
        case .command: commandSpecification
        case .info:
            server("Returns figures of the server as text", -1, .string("section").optional.multiple)
        }
    }

    private var clientSpecification: CommandSpecification {
        func part(_ name: String, _ summary: String, _ arguments: CommandArgument...) -> CommandSpecification {
            CommandSpecification(
                "client|\(name)", summary, group: "connection", arity: 2 + arguments.count,
                flags: ["noscript", "loading", "stale"], arguments)
        }
        return CommandSpecification(
            "client", "Commands about the connection", group: "connection", arity: -2, flags: [],
            subcommands: [
                part("id", "Returns the number of the connection"),
                part("getname", "Returns the name of the connection"),
                part("setname", "Names the connection", .string("name")),
                part(
                    "setinfo", "Says which library the client uses",
                    CommandArgument(
                        "attribute", .oneOf,
                        [
                            CommandArgument("lib-name", .pureToken, token: "LIB-NAME"),
                            CommandArgument("lib-ver", .pureToken, token: "LIB-VER"),
                        ]),
                    .string("value")),
            ])
    }

    private var commandSpecification: CommandSpecification {
        func part(
            _ name: String, _ summary: String, _ arity: Int, _ arguments: CommandArgument...
        ) -> CommandSpecification {
            CommandSpecification(
                "command|\(name)", summary, group: "server", arity: arity, flags: ["loading", "stale"], arguments)
        }
        let names = CommandArgument.string("name").optional.multiple
        return CommandSpecification(
            "command", "Returns what commands there are", group: "server", arity: -1, flags: ["loading", "stale"],
            subcommands: [
                part("count", "Returns how many commands there are", 2),
                part("info", "Returns the shape of commands", -2, names),
                part("docs", "Returns the documentation of commands", -2, names),
            ])
    }
}

/// What the commands of a group have in common.
extension CommandName {
    private func image(
        _ summary: String, _ arity: Int, _ flags: [String], _ arguments: CommandArgument...
    ) -> CommandSpecification {
        CommandSpecification(rawValue, summary, group: "images", arity: arity, flags: flags, arguments)
    }

    private func session(
        _ summary: String, _ arity: Int, _ flags: [String], _ arguments: CommandArgument...
    ) -> CommandSpecification {
        CommandSpecification(rawValue, summary, group: "login", arity: arity, flags: flags, arguments)
    }

    private func connection(
        _ summary: String, _ arity: Int, _ arguments: CommandArgument...
    ) -> CommandSpecification {
        CommandSpecification(
            rawValue, summary, group: "connection", arity: arity, flags: ["noscript", "loading", "stale", "fast"],
            arguments)
    }

    private func server(_ summary: String, _ arity: Int, _ arguments: CommandArgument...) -> CommandSpecification {
        CommandSpecification(
            rawValue, summary, group: "server", arity: arity, flags: ["loading", "stale"], arguments)
    }
}

extension CommandArgument {
    fileprivate static var size: CommandArgument { .option("SIZE", "px", .integer) }
    fileprivate static var wait: CommandArgument { .option("WAIT", "ms", .integer) }
    fileprivate static var uid: CommandArgument { .option("UID", "uid", .integer) }
}
