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
