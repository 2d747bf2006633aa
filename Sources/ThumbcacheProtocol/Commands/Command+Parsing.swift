import ImageOptions
import NIOCore

extension Command {
    /// Parses a request. Command and option names are case-insensitive; all other arguments are taken literally.
    /// - Throws: ``CommandError`` that names the invalid argument and the valid values.
    public init(_ request: borrowing Request, limits: RequestLimits = RequestLimits()) throws(CommandError) {
        guard request.count > 0 else { throw CommandError(.err, "the request is empty: expected a command") }
        guard let name = CommandName(request.withBytes(of: 0) { PackedName($0) }) else {
            throw CommandError(
                .err,
                request.withBytes(of: 0) { CommandName.advice(PackedName($0)) }
                    ?? "unknown command '\(request.shown(at: 0))', see COMMAND")
        }
        try request.requireCount(name.counts, of: name.specification)
        var arguments = Arguments(request, of: name, limits)
        switch name {
        case .get: self = .get(try GetCommand(arguments))
        case .mget: self = .mget(try MGetCommand(arguments))
        case .put: self = .put(try PutCommand(arguments))
        case .warm: self = .warm(try WarmCommand(arguments))
        case .purge: self = .purge(try PurgeCommand(arguments))
        case .stat: self = .stat(try StatCommand(arguments))
        case .explain: self = .explain(try ExplainCommand(arguments))
        case .login: self = .login(try LoginCommand(arguments))
        case .logout: self = .logout(try LogoutCommand(arguments))
        case .users: self = .users
        case .subscribe: self = .subscribe(try arguments.targets())
        case .unsubscribe: self = .unsubscribe(try arguments.targets())
        case .hello: self = .hello(try HelloCommand(arguments))
        case .ping: self = .ping(request.count == 2 ? request[1] : nil)
        case .echo: self = .echo(request[1])
        case .quit: self = .quit
        case .reset: self = .reset
        case .select:
            guard request.withBytes(of: 1, { wholeNumber($0) }) == 0 else {
                throw CommandError(.err, "no database '\(request.shown(at: 1))': only 0 exists")
            }
            self = .select
        case .client: self = .client(try ClientCommand(request))
        case .command: self = .command(try CommandQuery(request))
        case .info: self = .info(try request.names(1..<request.count).map { $0.lowercased() })
        case .metrics: self = .metrics
        }
    }
}

extension GetCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profile: try arguments.id("profile"))
        var sizes = SizeParser()
        while let option = try arguments.option() {
            switch option {
            case .size, .fit, .format: try sizes.read(option, from: &arguments)
            case .url: url = try arguments.url()
            case .wait: wait = try arguments.wait()
            case .cached, .noWait: download = try arguments.downloadChoice(option, instead: download)
            case .ifNot: ifNot = try arguments.digest()
            case .meta: meta = true
            default: throw arguments.unsupportedOption()
            }
        }
        size = try sizes.size(of: arguments)
    }
}

extension MGetCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profiles: try arguments.profiles())
        var sizes = SizeParser()
        while let option = try arguments.option() {
            switch option {
            case .size, .fit, .format: try sizes.read(option, from: &arguments)
            case .wait: wait = try arguments.wait()
            case .cached, .noWait: download = try arguments.downloadChoice(option, instead: download)
            default: throw arguments.unsupportedOption()
            }
        }
        size = try sizes.size(of: arguments)
    }
}

extension PutCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profile: try arguments.id("profile"), image: arguments.next())
        guard image.readableBytes <= arguments.limits.image else {
            throw CommandError(
                .tooLarge, "the image has \(image.readableBytes) bytes: at most \(arguments.limits.image) are accepted")
        }
        while let option = try arguments.option() {
            switch option {
            case .size: size = try ImageSize(arguments.size())
            case .ttl: ttl = try arguments.ttl()
            default: throw arguments.unsupportedOption()
            }
        }
    }
}

extension WarmCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profiles: try arguments.profiles())
        var sizes = SizeParser()
        while let option = try arguments.option() {
            try sizes.read(option, from: &arguments)
        }
        size = try sizes.size(of: arguments)
    }
}

extension PurgeCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(target: try arguments.target())
        // No option's name is a number, so any other argument must be the count.
        if !arguments.isAtEnd && !arguments.isAtOption { profiles = try arguments.profiles() }
        while let option = try arguments.option() {
            guard option == .uid else { throw arguments.unsupportedOption() }
            uid = try arguments.uid()
        }
    }
}

extension StatCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user())
        if !arguments.isAtEnd { profile = try arguments.id("profile") }
        var sizes = SizeParser()
        while let option = try arguments.option() {
            try sizes.read(option, from: &arguments)
        }
        size = try sizes.size(of: arguments)
    }
}

extension ExplainCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profile: try arguments.id("profile"))
        var sizes = SizeParser()
        while let option = try arguments.option() {
            try sizes.read(option, from: &arguments)
        }
        size = try sizes.size(of: arguments)
    }
}

extension LoginCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user())
        while let option = try arguments.option() {
            switch option {
            case .session: session = try arguments.session()
            case .hold: hold = true
            case .origin: origin = try arguments.originName()
            case .token: token = try arguments.token()
            case .refresh: refresh = try arguments.refreshToken()
            default: throw arguments.unsupportedOption()
            }
        }
    }
}

extension LogoutCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(target: try arguments.target())
        while let option = try arguments.option() {
            switch option {
            case .session: session = try arguments.session()
            case .uid: uid = try arguments.uid()
            default: throw arguments.unsupportedOption()
            }
        }
    }
}

extension HelloCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init()
        guard !arguments.isAtEnd else { return }
        version = arguments.next().withUnsafeReadableBytes { wholeNumber($0) }
        guard version == 2 || version == 3 else {
            throw CommandError(.noProto, "no protocol version '\(arguments.request.shown(at: 1))': expected 2 or 3")
        }
        while let option = try arguments.option() {
            switch option {
            case .auth:
                // The connection replies with an error that names the caller's uid.
                _ = try arguments.value()
                _ = try arguments.value()
                hasAuth = true
            case .setName: name = try arguments.connectionName()
            default: throw arguments.unsupportedOption()
            }
        }
    }
}

extension ClientCommand {
    init(_ request: borrowing Request) throws(CommandError) {
        switch try request.subcommand(of: .client) {
        case "ID": self = .id
        case "LIST": self = .list
        case "GETNAME": self = .getName
        case "SETNAME": self = .setName(try request[2].connectionName("name"))
        case "CAPA": self = .capabilities
        default:
            let key = try request.names(2..<3)[0].lowercased()
            guard key == "lib-name" || key == "lib-ver" else {
                throw CommandError(
                    .err, "bad attribute '\(request.shown(at: 2))' for 'client setinfo': expected LIB-NAME or LIB-VER")
            }
            self = .setInfo(key: key, value: try request[3].connectionName(key))
        }
    }
}

extension CommandQuery {
    init(_ request: borrowing Request) throws(CommandError) {
        guard request.count > 1 else {
            self = .all
            return
        }
        switch try request.subcommand(of: .command) {
        case "COUNT": self = .count
        case "INFO": self = .info(try Self.names(of: request))
        default: self = .docs(try Self.names(of: request))
        }
    }

    /// More than the number of commands, but few enough for one turn of the event loop.
    private static var maximumNames: Int { 256 }

    private static func names(of request: borrowing Request) throws(CommandError) -> [String] {
        guard request.count - 2 <= maximumNames else {
            throw CommandError(
                .err, "'command \(request.shown(at: 1))' names \(request.count - 2) commands: at most \(maximumNames)")
        }
        return try request.names(2..<request.count)
    }
}

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
                "Describes what a GET would do now, and why", "images", ["readonly"],
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
