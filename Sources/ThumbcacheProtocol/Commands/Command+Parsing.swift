import NIOCore
import RESP

extension Command {
    /// Reads a command from a request. Names of commands and options are compared without regard to case; every other
    /// argument is taken as it is.
    ///
    /// - Throws: ``CommandError`` that names what is wrong with the request and says what would be right.
    public init(_ request: borrowing Request, limits: CommandLimits = CommandLimits()) throws(CommandError) {
        guard request.count > 0 else { throw CommandError(.err, "the request is empty: expected a command") }
        switch request.withBytes(of: 0, { Word($0) }) {
        case "GET": self = .get(try GetCommand(request, limits))
        case "MGET": self = .mget(try MGetCommand(request, limits))
        case "PUT": self = .put(try PutCommand(request, limits))
        case "PURGE": self = .purge(try PurgeCommand(request, limits))
        case "STAT": self = .stat(try StatCommand(request, limits))
        case "LOGIN": self = .login(try LoginCommand(request, limits))
        case "LOGOUT": self = .logout(try LogoutCommand(request, limits))
        case "USERS":
            try request.requireCount(1...1, of: .users)
            self = .users
        case "HELLO": self = .hello(try HelloCommand(request, limits))
        case "PING":
            try request.requireCount(1...2, of: .ping)
            self = .ping(request.count == 2 ? request[1] : nil)
        case "ECHO":
            try request.requireCount(2...2, of: .echo)
            self = .echo(request[1])
        case "QUIT":
            try request.requireCount(1...1, of: .quit)
            self = .quit
        case "RESET":
            try request.requireCount(1...1, of: .reset)
            self = .reset
        case "SELECT":
            try request.requireCount(2...2, of: .select)
            guard request.withBytes(of: 1, { wholeNumber($0) }) == 0 else {
                throw CommandError(.err, "no database '\(request.shown(at: 1))': there is only 0")
            }
            self = .select
        case "CLIENT": self = .client(try ClientCommand(request))
        case "COMMAND": self = .command(try CommandQuery(request))
        case "INFO": self = .info(try request.names(1..<request.count).map { $0.lowercased() })
        default: throw CommandError(.err, "unknown command '\(request.shown(at: 0))', see COMMAND")
        }
    }
}

// MARK: Images

extension GetCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .get, 3..., limits)
        self.init(user: try arguments.user(), profile: try arguments.id("profile"))
        while let option = try arguments.option() {
            switch option {
            case .size: size = try arguments.size()
            case .url: url = try arguments.url()
            case .wait: wait = try arguments.wait()
            case .cached: cachedOnly = true
            case .ifNot: ifNot = try arguments.digest()
            case .meta: meta = true
            default: throw arguments.notTaken()
            }
        }
    }
}

extension MGetCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .mget, 4..., limits)
        self.init(user: try arguments.user(), profiles: try arguments.profiles())
        while let option = try arguments.option() {
            switch option {
            case .size: size = try arguments.size()
            case .wait: wait = try arguments.wait()
            case .cached: cachedOnly = true
            default: throw arguments.notTaken()
            }
        }
    }
}

extension PutCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .put, 4..., limits)
        self.init(user: try arguments.user(), profile: try arguments.id("profile"), image: arguments.next())
        guard image.readableBytes <= limits.image else {
            throw CommandError(
                .tooLarge, "the image has \(image.readableBytes) bytes: at most \(limits.image) are accepted")
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

extension PurgeCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .purge, 2..., limits)
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
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .stat, 2..., limits)
        self.init(user: try arguments.user())
        if !arguments.isAtEnd { profile = try arguments.id("profile") }
        while let option = try arguments.option() {
            guard option == .size else { throw arguments.notTaken() }
            size = try arguments.size()
        }
    }
}

// MARK: Users

extension LoginCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .login, 2..., limits)
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
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .logout, 2..., limits)
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
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        var arguments = try Arguments(request, of: .hello, 1..., limits)
        self.init()
        guard !arguments.isAtEnd else { return }
        version = arguments.next().withUnsafeReadableBytes { wholeNumber($0) }
        guard version == 2 || version == 3 else {
            throw CommandError(.noProto, "no protocol version '\(request.shown(at: 1))': expected 2 or 3")
        }
        while let option = try arguments.option() {
            switch option {
            case .auth:
                // Name and password are passed over: who the caller is, the kernel says.
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
        try request.requireCount(2..., of: .client)
        switch request.withBytes(of: 1, { Word($0) }) {
        case "ID":
            try request.requireCount(2...2, of: .client)
            self = .id
        case "GETNAME":
            try request.requireCount(2...2, of: .client)
            self = .getName
        case "SETNAME":
            try request.requireCount(3...3, of: .client)
            self = .setName(try request.connectionName(at: 2, "name"))
        case "SETINFO":
            try request.requireCount(4...4, of: .client)
            let key = try request.names(2..<3)[0].lowercased()
            guard key == "lib-name" || key == "lib-ver" else {
                throw CommandError(
                    .err, "bad attribute '\(request.shown(at: 2))' for 'client setinfo': expected LIB-NAME or LIB-VER")
            }
            self = .setInfo(key: key, value: try request.connectionName(at: 3, key))
        default:
            throw CommandError(
                .err,
                "unknown subcommand '\(request.shown(at: 1))' of 'client': "
                    + "expected ID, GETNAME, SETNAME or SETINFO")
        }
    }
}

extension CommandQuery {
    init(_ request: borrowing Request) throws(CommandError) {
        guard request.count > 1 else {
            self = .all
            return
        }
        switch request.withBytes(of: 1, { Word($0) }) {
        case "COUNT":
            try request.requireCount(2...2, of: .command)
            self = .count
        case "INFO": self = .info(try Self.names(of: request))
        case "DOCS": self = .docs(try Self.names(of: request))
        default:
            throw CommandError(
                .err, "unknown subcommand '\(request.shown(at: 1))' of 'command': expected COUNT, INFO or DOCS")
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
