import NIOCore
import RESP

extension HelloCommand {
    init(_ request: borrowing Request, _ limits: CommandLimits) throws(CommandError) {
        self.init()
        guard request.count > 1 else { return }
        switch request.withBytes(of: 1, { wholeNumber($0) }) {
        case 2: version = 2
        case 3: version = 3
        default:
            throw CommandError(.noProto, "no protocol version '\(request.shown(at: 1))': expected 2 or 3")
        }
        var options = Options(copy request, from: 2, of: .hello, limits)
        while let option = try options.next() {
            switch option {
            case .auth:
                // Name and password are passed over: who the caller is, the kernel says.
                _ = try options.value()
                _ = try options.value()
                hasAuth = true
            case .setName: name = try options.connectionName()
            default: throw options.notTaken()
            }
        }
    }
}

extension ClientCommand {
    init(_ request: borrowing Request) throws(CommandError) {
        guard request.count > 1 else { throw request.wrongCount(of: .client) }
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
            let key = try request.name(at: 2).lowercased()
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
        return try request.names(from: 2)
    }
}
