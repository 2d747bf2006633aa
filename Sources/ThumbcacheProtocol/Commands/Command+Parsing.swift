import NIOCore
import RESP

extension Command {
    /// Reads a command from a request. Names of commands and options are compared without regard to case; every other
    /// argument is taken as it is. `GET user profile` costs no allocation.
    ///
    /// - Throws: ``CommandError`` that names what is wrong with the request and says what would be right.
    public init(_ request: borrowing Request, limits: CommandLimits = CommandLimits()) throws(CommandError) {
        guard request.count > 0 else { throw CommandError(.err, "the request is empty: expected a command") }
        switch request.withBytes(of: 0, { Word($0) }) {
        case "GET": self = .get(try GetCommand.read(request, limits))
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
        case "SELECT": self = .select(try Self.database(request))
        case "CLIENT": self = .client(try ClientCommand(request))
        case "COMMAND": self = .command(try CommandQuery(request))
        case "INFO": self = .info(try request.names(from: 1).map { $0.lowercased() })
        default: throw CommandError(.err, "unknown command '\(request.shown(at: 0))', see COMMAND")
        }
    }

    private static func database(_ request: borrowing Request) throws(CommandError) -> Int {
        try request.requireCount(2...2, of: .select)
        guard request.withBytes(of: 1, { wholeNumber($0) }) == 0 else {
            throw CommandError(.err, "no database '\(request.shown(at: 1))': there is only 0")
        }
        return 0
    }
}

extension GetCommand {
    /// A function and not an initialiser, which would copy the command once more before handing it out: this is the
    /// way of every hit.
    static func read(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) -> GetCommand {
        try request.requireCount(3..., of: .get)
        let user = try request.user(limits)
        let profile = try request.id(at: 2, "profile", limits)
        if request.count == 3 { return GetCommand(user: user, profile: profile) }
        var command = GetCommand(user: user, profile: profile)
        var options = Options(copy request, from: 3, of: .get, limits)
        while let option = try options.next() {
            switch option {
            case .size: command.size = try options.size()
            case .url: command.url = try options.url()
            case .wait: command.wait = try options.wait()
            case .cached: command.cachedOnly = true
            case .ifNot: command.ifNot = try options.digest()
            case .meta: command.meta = true
            default: throw options.notTaken()
            }
        }
        return command
    }
}

extension MGetCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        try request.requireCount(4..., of: .mget)
        var index = 2
        self.init(
            user: try request.user(limits), profiles: try request.profiles(at: &index, of: .mget, limits))
        var options = Options(copy request, from: index, of: .mget, limits)
        while let option = try options.next() {
            switch option {
            case .size: size = try options.size()
            case .wait: wait = try options.wait()
            case .cached: cachedOnly = true
            default: throw options.notTaken()
            }
        }
    }
}

extension PutCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        try request.requireCount(4..., of: .put)
        self.init(
            user: try request.user(limits), profile: try request.id(at: 2, "profile", limits), image: request[3])
        guard image.readableBytes <= limits.image else {
            throw CommandError(
                .tooLarge, "the image has \(image.readableBytes) bytes: at most \(limits.image) are accepted")
        }
        var options = Options(copy request, from: 4, of: .put, limits)
        while let option = try options.next() {
            switch option {
            case .size: size = try options.size()
            case .ttl: ttl = try options.ttl()
            default: throw options.notTaken()
            }
        }
    }
}

extension PurgeCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        try request.requireCount(2..., of: .purge)
        self.init(target: try request.target(limits))
        var index = 2
        // No option's name is a number, so what is none has to be the count.
        if index < request.count, Option(request.withBytes(of: index) { Word($0) }) == nil {
            profiles = try request.profiles(at: &index, of: .purge, limits)
        }
        var options = Options(copy request, from: index, of: .purge, limits)
        while let option = try options.next() {
            switch option {
            case .uid: uid = try options.uid()
            default: throw options.notTaken()
            }
        }
    }
}

extension StatCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        try request.requireCount(2..., of: .stat)
        self.init(user: try request.user(limits))
        guard request.count > 2 else { return }
        profile = try request.id(at: 2, "profile", limits)
        var options = Options(copy request, from: 3, of: .stat, limits)
        while let option = try options.next() {
            switch option {
            case .size: size = try options.size()
            default: throw options.notTaken()
            }
        }
    }
}

extension LoginCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        try request.requireCount(2..., of: .login)
        self.init(user: try request.user(limits))
        var options = Options(copy request, from: 2, of: .login, limits)
        while let option = try options.next() {
            switch option {
            case .session: session = try options.id("SESSION")
            case .hold: hold = true
            case .origin: origin = try options.originName()
            case .token: token = try options.token()
            case .refresh: refresh = try options.refreshToken()
            default: throw options.notTaken()
            }
        }
    }
}

extension LogoutCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        try request.requireCount(2..., of: .logout)
        self.init(target: try request.target(limits))
        var options = Options(copy request, from: 2, of: .logout, limits)
        while let option = try options.next() {
            switch option {
            case .session: session = try options.id("SESSION")
            case .uid: uid = try options.uid()
            default: throw options.notTaken()
            }
        }
    }
}
