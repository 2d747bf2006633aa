/// What the program's exit status says. Scripts rely on it.
enum ExitStatus: Int32, Sendable {
    case done = 0
    /// The daemon said no, or something on this machine.
    case refused = 1
    /// What the command line asks for cannot be: options that exclude each other, a file that cannot be read.
    case usage = 2
    /// There is no daemon, or the connection to it broke.
    case unreachable = 3
    case noImage = 4
    /// A log-out is not done; a marker was left, by which it will be.
    case pending = 5
}

/// Why a command was not done.
struct Failure: Error {
    let status: ExitStatus
    let message: String

    init(_ status: ExitStatus, _ message: String) {
        self.status = status
        self.message = message
    }
}
