import NIOCore

extension Command {
    /// Reads a command from a request. Names of commands and options are compared without regard to case; every other
    /// argument is taken as it is.
    ///
    /// - Throws: ``CommandError`` that names what is wrong with the request and says what would be right.
    public init(_ request: borrowing Request, limits: CommandLimits = CommandLimits()) throws(CommandError) {
        guard request.count > 0 else { throw CommandError(.err, "the request is empty: expected a command") }
        guard let name = CommandName(request.withBytes(of: 0) { Word($0) }) else {
            throw CommandError(
                .err,
                request.withBytes(of: 0) { CommandName.advice(Word($0)) }
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
                throw CommandError(.err, "no database '\(request.shown(at: 1))': there is only 0")
            }
            self = .select
        case .client: self = .client(try ClientCommand(request))
        case .command: self = .command(try CommandQuery(request))
        case .info: self = .info(try request.names(1..<request.count).map { $0.lowercased() })
        case .metrics: self = .metrics
        }
    }
}

// MARK: Images

extension GetCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profile: try arguments.id("profile"))
        while let option = try arguments.option() {
            switch option {
            case .size, .fit, .format: try arguments.take(option, into: &sizing)
            case .url: url = try arguments.url()
            case .wait: wait = try arguments.wait()
            case .cached, .noWait: download = try arguments.downloadChoice(option, instead: download)
            case .ifNot: ifNot = try arguments.digest()
            case .meta: meta = true
            default: throw arguments.notTaken()
            }
        }
        try arguments.check(sizing)
    }
}

extension MGetCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profiles: try arguments.profiles())
        while let option = try arguments.option() {
            switch option {
            case .size, .fit, .format: try arguments.take(option, into: &sizing)
            case .wait: wait = try arguments.wait()
            case .cached, .noWait: download = try arguments.downloadChoice(option, instead: download)
            default: throw arguments.notTaken()
            }
        }
        try arguments.check(sizing)
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
            case .size: size = try arguments.size()
            case .ttl: ttl = try arguments.ttl()
            default: throw arguments.notTaken()
            }
        }
    }
}

extension WarmCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user(), profiles: try arguments.profiles())
        while let option = try arguments.option() {
            try arguments.take(option, into: &sizing)
        }
        try arguments.check(sizing)
    }
}

extension PurgeCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(target: try arguments.target())
        // No option's name is a number, so what is none has to be the count.
        if !arguments.isAtEnd && !arguments.isAtOption { profiles = try arguments.profiles() }
        while let option = try arguments.option() {
            guard option == .uid else { throw arguments.notTaken() }
            uid = try arguments.uid()
        }
    }
}

extension StatCommand {
    init(_ arguments: consuming Arguments) throws(CommandError) {
        self.init(user: try arguments.user())
        if !arguments.isAtEnd { profile = try arguments.id("profile") }
        while let option = try arguments.option() {
            try arguments.take(option, into: &sizing)
        }
        try arguments.check(sizing)
    }
}

// MARK: Users

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
            default: throw arguments.notTaken()
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
            default: throw arguments.notTaken()
            }
        }
    }
}

// MARK: The connection

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
                // The connection answers with an error that names the caller's uid.
                _ = try arguments.value()
                _ = try arguments.value()
                hasAuth = true
            case .setName: name = try arguments.connectionName()
            default: throw arguments.notTaken()
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

    /// Far more than there are commands, and no more than a turn of the event loop has time for.
    private static var longest: Int { 256 }

    private static func names(of request: borrowing Request) throws(CommandError) -> [String] {
        guard request.count - 2 <= longest else {
            throw CommandError(
                .err, "'command \(request.shown(at: 1))' names \(request.count - 2) commands: at most \(longest)")
        }
        return try request.names(2..<request.count)
    }
}

/// Every command there is.
enum CommandName: Int, CaseIterable {
    case get, mget, put, warm, purge, stat
    case login, logout, users
    case subscribe, unsubscribe
    case hello, ping, echo, quit, reset, select, client
    case command, info, metrics

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

    /// What to use instead of a command that clients of Redis send.
    static func advice(_ word: Word) -> String? {
        switch word {
        case "AUTH": "AUTH is not needed: the kernel tells the daemon which uid you are; connect without a password"
        case "SET", "SETEX": "SET is no command here: PUT user profile image stores an image"
        case "DEL", "UNLINK": "DEL is no command here: PURGE user 1 profile removes an image"
        case "EXISTS", "TTL": "EXISTS is no command here: STAT user profile says what is held of an image"
        case "FLUSHALL", "FLUSHDB": "FLUSHALL is no command here: PURGE user removes all images of a user"
        default: nil
        }
    }

    /// How many arguments it may have, with the name. Looked at for each request.
    var counts: ClosedRange<Int> { Self.counts[rawValue] }

    private var described: CommandSpecification {
        let connection = ["noscript", "loading", "stale", "fast"]
        let server = ["loading", "stale"]
        func takes(
            _ summary: String, _ group: String, _ flags: [String], _ arguments: CommandArgument...,
            parts: [CommandSpecification] = [], mayStandAlone: Bool = true
        ) -> CommandSpecification {
            CommandSpecification(
                name: name, summary: summary, group: group, flags: flags, arguments: arguments, subcommands: parts,
                mayStandAlone: mayStandAlone)
        }
        func part(_ part: String, _ summary: String, _ arguments: CommandArgument...) -> CommandSpecification {
            // CLIENT's and COMMAND's.
            let (group, flags) = self == .client ? ("connection", ["noscript"] + server) : ("server", server)
            return CommandSpecification(
                name: "\(name)|\(part)", summary: summary, group: group, flags: flags, arguments: arguments)
        }
        return switch self {
        case .get:
            takes(
                "Returns an image, from the cache or else from the user's origin", "images", ["readonly"],
                .string("user"), .string("profile"), .size, .fit, .format, .option("URL", "url"), .wait, .download,
                .option("IFNOT", "digest"), .flag("META"))
        case .mget:
            takes(
                "Returns several images, downloading side by side those that are missing", "images", ["readonly"],
                .string("user"), .integer("count"), .string("profile").multiple, .size, .fit, .format, .wait,
                .download)
        case .put:
            takes(
                "Stores an image that the client has", "images", ["write", "denyoom"],
                .string("user"), .string("profile"), .string("image"), .size, .option("TTL", "seconds", .integer))
        case .warm:
            takes(
                "Downloads in the background those images that are missing or stale", "images", ["readonly"],
                .string("user"), .integer("count"), .string("profile").multiple, .size, .fit, .format)
        case .purge:
            takes(
                "Removes the images of a user, or those of some profiles; the user stays logged in", "images",
                ["write"], .target, .block("profiles", .integer("count"), .string("profile").multiple).optional, .uid)
        case .stat:
            takes(
                "Says what is held of a user, or of one profile", "images", ["readonly"],
                .string("user"), .block("slot", .string("profile"), .size, .fit, .format).optional)
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
        case .subscribe:
            takes("Has events of users sent to the connection", "pubsub", ["pubsub", "noscript"], .target.multiple)
        case .unsubscribe:
            takes(
                "Has events of users, or of all, no longer sent", "pubsub", ["pubsub", "noscript"],
                .target.multiple.optional)
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
        case .client:
            takes(
                "Commands about the connection", "connection", [],
                parts: [
                    part("id", "Returns the number of the connection"),
                    part("list", "Returns the connections that there are"),
                    part("getname", "Returns the name of the connection"),
                    part("setname", "Names the connection", .string("name")),
                    part(
                        "setinfo", "Says which library the client uses",
                        .oneOf("attribute", .word("LIB-NAME", "lib-name"), .word("LIB-VER", "lib-ver")),
                        .string("value")),
                    part("capa", "Says what the client can do, which changes nothing", .string("name").multiple),
                ], mayStandAlone: false)
        case .command:
            takes(
                "Returns what commands there are", "server", server,
                parts: [
                    part("count", "Returns how many commands there are"),
                    part("info", "Returns the shape of commands", .string("name").optional.multiple),
                    part("docs", "Returns the documentation of commands", .string("name").optional.multiple),
                ])
        case .info:
            takes("Returns figures of the server as text", "server", server, .string("section").optional.multiple)
        case .metrics: takes("Returns figures of the server for Prometheus, to admins and observers", "server", server)
        }
    }
}

extension CommandArgument {
    /// `user|*`
    fileprivate static var target: CommandArgument { .oneOf("target", .string("user"), .word("*", "all")) }
    fileprivate static var size: CommandArgument { .option("SIZE", "px", .integer) }
    fileprivate static var fit: CommandArgument { .words("FIT", PictureFit.allCases.map(\.rawValue)) }
    fileprivate static var format: CommandArgument { .words("FORMAT", PictureFormat.allCases.map(\.rawValue)) }
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
