/// What the program's exit status says. Scripts rely on it.
enum ExitStatus: Int32, Sendable {
    case done = 0
    case refused = 1
    case usage = 2
    case unreachable = 3
    case noImage = 4
    /// A log-out is not done; a marker was left, by which it will be.
    case pending = 5
}

/// Why a command was not done.
enum Failure: Error, Equatable {
    /// The daemon said no: its error code and its words.
    case refused(code: String, message: String)
    /// What the command line asks for cannot be: options that exclude each other, a file that cannot be read.
    case usage(String)
    /// There is no daemon, or the connection to it broke.
    case unreachable(String)
    case noImage(String)
    /// The daemon did not do it, and was left word to.
    case pending(String)
    /// Something on this machine, without the daemon, could not be done.
    case local(String)

    var status: ExitStatus {
        switch self {
        case .refused, .local: .refused
        case .usage: .usage
        case .unreachable: .unreachable
        case .noImage: .noImage
        case .pending: .pending
        }
    }

    var message: String {
        switch self {
        case .refused(let code, let message): PlainText.escape("\(code) \(message)")
        case .usage(let message), .unreachable(let message), .noImage(let message), .pending(let message),
            .local(let message):
            message
        }
    }
}
