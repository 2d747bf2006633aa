import Glibc
import LinuxSupport
import NIOCore
import RESP
@_spi(Wire) import Thumbcache

/// The world as a command sees it.
struct Environment {
    /// An environment variable.
    let variable: (_ name: String) -> String?

    /// What a request may take by default, in seconds. Downloads and log-outs of many users take what they take;
    /// without any bound a log-out hook would hang for ever on a daemon that is stuck.
    static let timeout = 600

    /// The daemon's reply to one request.
    /// - Parameter timeout: seconds that all of it may take, connecting included.
    func ask(
        _ request: [ByteBuffer], _ options: DaemonOptions, within timeout: Int = timeout
    ) async throws(Failure) -> Value {
        try await withDaemon(options, within: timeout) { daemon throws(Failure) in
            try await daemon.ask { client throws(ThumbcacheError) in
                try await client.reply(to: ThumbcacheRequest(request)).value
            }
        }
    }

    /// Does something with a client of the daemon, whose requests may take `timeout` seconds each.
    func withDaemon<Success>(
        _ options: DaemonOptions, within timeout: Int = timeout,
        _ body: (ConnectedDaemon) async throws(Failure) -> Success
    ) async throws(Failure) -> Success {
        let path = try SocketPath.choose(option: options.socket, world: self)
        var configuration = ThumbcacheConfiguration()
        configuration.requestTimeout = .seconds(timeout)
        configuration.connectTimeout = .seconds(timeout)
        // For one request there is nobody to find in CLIENT LIST.
        configuration.libraryName = nil
        // The event loop has the signal ignored for the whole process. Whoever reads what is printed and stops reading
        // is to end this program as any other.
        let brokenPipe = signal(SIGPIPE, SIG_IGN)
        defer { signal(SIGPIPE, brokenPipe) }
        let client = ThumbcacheClient(path: path, configuration: configuration)
        let running = Task { await client.run() }
        let outcome: Result<Success, Failure>
        do throws(Failure) {
            outcome = .success(try await body(ConnectedDaemon(client: client, path: path, timeout: timeout)))
        } catch {
            outcome = .failure(error)
        }
        running.cancel()
        await running.value
        return try outcome.get()
    }

    func show(_ value: Value, _ options: OutputOptions) throws(Failure) {
        try Printer(style: options.json ? .json : isTerminal(STDOUT_FILENO) ? .aligned : .plain).show(value)
    }

    /// There is no result: `null` for programs, and why for people.
    func noImage(_ options: OutputOptions, _ reason: String) throws(Failure) -> Failure {
        if options.json { try show(.null, options) }
        return Failure(.noImage, reason)
    }

    /// Prints a receipt. What it is the receipt of has happened, whether or not anybody can read that: where it cannot
    /// be written there is a warning, and no failure.
    func showReceipt(_ receipt: Value, _ options: OutputOptions, behind fact: String) {
        signal(SIGPIPE, SIG_IGN)
        do throws(Failure) {
            try show(receipt, options)
        } catch {
            complain("thumbcachectl: \(fact), but \(error.message)", .warning)
        }
    }

    /// Says something on standard error, in one line or more; to the journal, with its priority.
    func complain(_ message: String, _ priority: Journal.Priority) {
        let isJournal = Journal.isBehind(STDERR_FILENO, variable("JOURNAL_STREAM"))
        do throws(Failure) {
            try write(Array(Journal.lines(message, priority, toJournal: isJournal).utf8), to: STDERR_FILENO)
        } catch {
            // There is nobody to tell; the exit status still says it.
        }
    }
}

/// A client of the daemon that runs.
struct ConnectedDaemon {
    let client: ThumbcacheClient
    let path: String
    let timeout: Int

    func ask<Success>(
        _ body: (ThumbcacheClient) async throws(ThumbcacheError) -> Success
    ) async throws(Failure) -> Success {
        do throws(ThumbcacheError) {
            return try await body(client)
        } catch {
            throw Failure(error, path: path, timeout: timeout)
        }
    }
}

/// Where the daemon's socket is.
enum SocketPath {
    /// The daemon that serves the whole machine.
    static let ofMachine = "/run/thumbcached/thumbcached.sock"
    /// A user's own daemon, relative to the session's runtime directory.
    static let ofSession = "thumbcached/thumbcached.sock"

    static func choose(option: String?, world: Environment) throws(Failure) -> String {
        try choose(
            option: option, isRoot: getuid() == 0, variable: world.variable,
            exists: { Glibc.access($0, F_OK) == 0 })
    }

    /// The same order as in `docs/configuration.md`. Whoever runs a daemon of their own means that one; for root
    /// there is only the machine's.
    static func choose(
        option: String?, isRoot: Bool, variable: (String) -> String?, exists: (String) -> Bool
    ) throws(Failure) -> String {
        if let option {
            guard !option.isEmpty else { throw Failure(.usage, "--socket is empty; name the daemon's socket") }
            return option
        }
        if let named = variable("THUMBCACHED_SOCKET"), !named.isEmpty { return named }
        let own = variable("XDG_RUNTIME_DIR").flatMap { $0.hasPrefix("/") ? "\($0)/\(ofSession)" : nil }
        if let own, !isRoot, exists(own) { return own }
        if exists(ofMachine) { return ofMachine }
        return own ?? ofMachine
    }
}

func isTerminal(_ descriptor: Int32) -> Bool { isatty(descriptor) == 1 }

func write(_ bytes: [UInt8], to descriptor: Int32 = STDOUT_FILENO) throws(Failure) {
    do throws(SystemError) {
        try writeAll(bytes, to: descriptor)
    } catch {
        throw Failure(.usage, "cannot write the output: \(error.reason)")
    }
}

/// The same, for what goes on until somebody stops it.
/// - Returns: false where whoever reads has stopped reading.
func writeOn(_ text: String, to descriptor: Int32 = STDOUT_FILENO) throws(Failure) -> Bool {
    do throws(SystemError) {
        try writeAll(Array(text.utf8), to: descriptor)
        return true
    } catch {
        if error.code == EPIPE { return false }
        throw Failure(.usage, "cannot write the output: \(error.reason)")
    }
}
