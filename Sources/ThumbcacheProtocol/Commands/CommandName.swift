import ImageOptions

enum CommandName: Int, CaseIterable {
    case get, mget, put, warm, purge, stat, explain
    case login, logout, users
    case subscribe, unsubscribe
    case hello, ping, echo, quit, reset, select, client
    case command, info, metrics

    private static let packedNames = allCases.map { PackedName($0.name) }
    private static let specifications = allCases.map(\.described)
    private static let counts = specifications.map(\.counts)

    init?(_ name: PackedName) {
        guard let index = Self.packedNames.firstIndex(of: name) else { return nil }
        self.init(rawValue: index)
    }

    var name: String { "\(self)" }

    /// The specification that argument counts, error messages and COMMAND are derived from.
    var specification: CommandSpecification { Self.specifications[rawValue] }

    /// Advice for commands that clients of Redis send.
    static func advice(_ name: PackedName) -> String? {
        switch name {
        case "AUTH": "AUTH is not supported: the kernel reports the caller's uid; connect without a password"
        case "SET", "SETEX": "SET is not supported: use PUT user profile image to store an image"
        case "DEL", "UNLINK": "DEL is not supported: use PURGE user 1 profile to remove an image"
        case "EXISTS", "TTL": "EXISTS is not supported: use STAT user profile to query a cached image"
        case "FLUSHALL", "FLUSHDB": "FLUSHALL is not supported: use PURGE user to remove all images of a user"
        default: nil
        }
    }

    /// The allowed number of arguments, including the name; cached, since it is checked for each request.
    var counts: ClosedRange<Int> { Self.counts[rawValue] }

    private var described: CommandSpecification {
        let connection = ["noscript", "loading", "stale", "fast"]
        let server = ["loading", "stale"]
        func command(
            _ summary: String, _ group: String, _ flags: [String], _ arguments: CommandArgument...,
            parts: [CommandSpecification] = [], mayStandAlone: Bool = true
        ) -> CommandSpecification {
            CommandSpecification(
                name: name, summary: summary, group: group, flags: flags, arguments: arguments, subcommands: parts,
                mayStandAlone: mayStandAlone)
        }
        func subcommand(_ part: String, _ summary: String, _ arguments: CommandArgument...) -> CommandSpecification {
            let (group, flags) = self == .client ? ("connection", ["noscript"] + server) : ("server", server)
            return CommandSpecification(
                name: "\(name)|\(part)", summary: summary, group: group, flags: flags, arguments: arguments)
        }
        return switch self {
        case .get:
            command(
                "Returns an image from the cache or the user's origin", "images", ["readonly"],
                .string("user"), .string("profile"), .size, .fit, .format, .option("URL", "url"), .wait, .download,
                .option("IFNOT", "digest"), .flag("META"))
        case .mget:
            command(
                "Returns several images; missing ones are downloaded in parallel", "images", ["readonly"],
                .string("user"), .integer("count"), .string("profile").multiple, .size, .fit, .format, .wait,
                .download)
        case .put:
            command(
                "Stores an image", "images", ["write", "denyoom"],
                .string("user"), .string("profile"), .string("image"), .size, .option("TTL", "seconds", .integer))
        case .warm:
            command(
                "Downloads missing and stale images in the background", "images", ["readonly"],
                .string("user"), .integer("count"), .string("profile").multiple, .size, .fit, .format)
        case .purge:
            command(
                "Removes all images of a user, or those of some profiles; the user stays logged in", "images",
                ["write"], .target, .block("profiles", .integer("count"), .string("profile").multiple).optional, .uid)
        case .stat:
            command(
                "Describes what is cached for a user or a profile", "images", ["readonly"],
                .string("user"), .block("image", .string("profile"), .size, .fit, .format).optional)
        case .explain:
            command(
                "Describes the result of a GET without performing it", "images", ["readonly"],
                .string("user"), .string("profile"), .size, .fit, .format)
        case .login:
            command(
                "Opens the cache of a user", "login", ["write", "denyoom"],
                .string("user"), .option("SESSION", "id"), .flag("HOLD"), .option("ORIGIN", "name"),
                .option("TOKEN", "token"), .option("REFRESH", "token"))
        case .logout:
            command(
                "Ends a user's session or all sessions; the cache ends with the last one", "login",
                ["write"], .target, .option("SESSION", "id"), .uid)
        case .users: command("Returns the logged-in users of the caller's uid", "login", ["readonly"])
        case .subscribe:
            command("Subscribes the connection to events of users", "pubsub", ["pubsub", "noscript"], .target.multiple)
        case .unsubscribe:
            command(
                "Unsubscribes the connection from events of some or all users", "pubsub", ["pubsub", "noscript"],
                .target.multiple.optional)
        case .hello:
            command(
                "Describes the server and selects the protocol version", "connection", connection,
                .block(
                    "arguments", .integer("version"),
                    .block("auth", token: "AUTH", .string("name"), .string("password")).optional,
                    .option("SETNAME", "name")
                ).optional)
        case .ping:
            command("Returns PONG or the message", "connection", connection, .string("message").optional)
        case .echo: command("Returns the message", "connection", connection, .string("message"))
        case .quit: command("Closes the connection", "connection", connection)
        case .reset: command("Resets the state of the connection", "connection", connection)
        case .select: command("Has no effect; the only database is 0", "connection", connection, .integer("index"))
        case .client:
            command(
                "Contains commands about the connection", "connection", [],
                parts: [
                    subcommand("id", "Returns the number of the connection"),
                    subcommand("list", "Lists the connections"),
                    subcommand("getname", "Returns the connection's name"),
                    subcommand("setname", "Sets the connection's name", .string("name")),
                    subcommand(
                        "setinfo", "Sets the client library's name or version",
                        .oneOf("attribute", .word("LIB-NAME", "lib-name"), .word("LIB-VER", "lib-ver")),
                        .string("value")),
                    subcommand("capa", "Accepts client capabilities; has no effect", .string("name").multiple),
                ], mayStandAlone: false)
        case .command:
            command(
                "Describes all commands", "server", server,
                parts: [
                    subcommand("count", "Returns the number of commands"),
                    subcommand("info", "Describes the arity and flags of commands", .string("name").optional.multiple),
                    subcommand("docs", "Documents commands", .string("name").optional.multiple),
                ])
        case .info:
            command("Returns statistics of the server as text", "server", server, .string("section").optional.multiple)
        case .metrics: command("Returns metrics for Prometheus; admins and observers only", "server", server)
        }
    }
}

extension CommandArgument {
    /// `user|*`
    fileprivate static var target: CommandArgument { .oneOf("target", .string("user"), .word("*", "all")) }
    fileprivate static var size: CommandArgument { .option("SIZE", "px", .integer) }
    fileprivate static var fit: CommandArgument { .words("FIT", ImageFit.allCases.map(\.rawValue)) }
    fileprivate static var format: CommandArgument { .words("FORMAT", ImageFormat.allCases.map(\.rawValue)) }
    fileprivate static var wait: CommandArgument { .option("WAIT", "ms", .integer) }
    /// `[CACHED|NOWAIT]`
    fileprivate static var download: CommandArgument {
        .oneOf("download", .word("CACHED", "cached"), .word("NOWAIT", "nowait")).optional
    }
    /// `[UID uid|*]`
    fileprivate static var uid: CommandArgument {
        CommandArgument(
            name: "of", kind: .oneOf, token: "UID", arguments: [.integer("uid"), .word("*", "every-uid")],
            isOptional: true)
    }
}
