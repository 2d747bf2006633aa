import Glibc
import RESP

/// The world as a command sees it.
struct Environment {
    /// An environment variable.
    let variable: (_ name: String) -> String?
    var input = StandardStream(descriptor: STDIN_FILENO)
    var output = StandardStream(descriptor: STDOUT_FILENO)
    var errors = StandardStream(descriptor: STDERR_FILENO)
    /// 64 bits that nobody can guess.
    var random: () -> UInt64 = { UInt64.random(in: .min ... .max) }

    /// - Parameters:
    ///   - patience: seconds that each read or write may take.
    ///   - limit: seconds that all of it may take, connecting included.
    func connect(
        _ options: DaemonOptions, patience: Int = Connection.patience, within limit: Int? = nil
    ) throws(Failure) -> Connection {
        let path = try SocketPath.choose(
            option: options.socket, variable: variable, exists: { Glibc.access($0, F_OK) == 0 })
        return try Connection(path: path, patience: patience, within: limit)
    }

    /// Prints a receipt. What it is the receipt of has happened, whether or not anybody can read that: where it cannot be
    /// written there is a warning, and no failure.
    func show(_ receipt: Value, _ options: OutputOptions, behind fact: String) {
        signal(SIGPIPE, SIG_IGN)
        do throws(Failure) {
            try printer(options).pairs(receipt.pairs)
        } catch {
            warn("\(fact), but \(error.message)")
        }
    }

    func warn(_ message: String) {
        complain("thumbcachectl: \(message)", .warning)
    }

    /// Says something on standard error, in one line or more; to the journal, with its priority.
    func complain(_ message: String, _ priority: Priority) {
        let prefix = errors.isJournal(variable("JOURNAL_STREAM")) ? "<\(priority.rawValue)>" : ""
        let lines = message.split(separator: "\n", omittingEmptySubsequences: false).map { prefix + $0 + "\n" }
        do throws(Failure) {
            try errors.write(Array(lines.joined().utf8)[...])
        } catch {
            // There is nobody to tell; the exit status still says it.
        }
    }

    func printer(_ options: OutputOptions) -> Printer {
        Printer(output: output, style: options.json ? .json : output.isTerminal ? .aligned : .plain)
    }
}

/// Where the daemon's socket is.
enum SocketPath {
    /// The daemon that serves the whole machine.
    static let ofMachine = "/run/thumbcached/thumbcached.sock"
    /// A user's own daemon, relative to the session's runtime directory.
    static let ofSession = "thumbcached/thumbcached.sock"

    /// The same order as in `docs/configuration.md`.
    static func choose(
        option: String?, variable: (String) -> String?, exists: (String) -> Bool
    ) throws(Failure) -> String {
        if let option {
            guard !option.isEmpty else { throw .usage("--socket is empty; name the daemon's socket") }
            return option
        }
        if let named = variable("THUMBCACHED_SOCKET"), !named.isEmpty { return named }
        if exists(ofMachine) { return ofMachine }
        guard let session = variable("XDG_RUNTIME_DIR"), session.hasPrefix("/") else { return ofMachine }
        return "\(session)/\(ofSession)"
    }
}

/// How bad it is: syslog(3).
enum Priority: Int32 {
    case error = 3
    case warning = 4
}

/// Standard input, output or error.
struct StandardStream {
    let descriptor: Int32

    var isTerminal: Bool { isatty(descriptor) == 1 }

    /// Whether it is what JOURNAL_STREAM names by device and inode: the variable is inherited, but the stream may have been led
    /// elsewhere since (systemd.exec(5)).
    func isJournal(_ named: String?) -> Bool {
        var status = stat()
        guard let named, fstat(descriptor, &status) == 0 else { return false }
        return named == "\(status.st_dev):\(status.st_ino)"
    }

    func write(_ bytes: ArraySlice<UInt8>) throws(Failure) {
        do throws(Errno) {
            try writeAll(bytes, to: descriptor)
        } catch {
            throw .usage("cannot write the output: \(reason(error.code))")
        }
    }
}

/// An errno, where a caller makes a sentence of it.
struct Errno: Error, Equatable {
    let code: Int32
}

/// Writes all of it, whatever the system takes at once.
func writeAll(_ bytes: ArraySlice<UInt8>, to descriptor: Int32) throws(Errno) {
    var rest = bytes
    while !rest.isEmpty {
        let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
        if count < 0 {
            let code = errno
            if code == EINTR { continue }
            throw Errno(code: code)
        }
        rest = rest.dropFirst(count)
    }
}

/// Reads to the end, or one byte past `limit`: the caller sees by the count that there was more.
func readAll(_ descriptor: Int32, limit: Int) throws(Errno) -> [UInt8] {
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 64 << 10)
    while bytes.count <= limit {
        let count = Glibc.read(descriptor, &chunk, min(chunk.count, limit + 1 - bytes.count))
        if count < 0 {
            let code = errno
            if code == EINTR { continue }
            throw Errno(code: code)
        }
        if count == 0 { break }
        bytes += chunk.prefix(count)
    }
    return bytes
}
