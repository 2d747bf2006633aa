import Glibc
import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// The world as a command sees it.
struct Environment {
    /// An environment variable.
    let variable: (_ name: String) -> String?

    /// What a request may take by default, in seconds. Downloads and log-outs of many users take what they take;
    /// without any bound a log-out hook would hang for ever on a daemon that is stuck.
    static let timeout = 600

    /// The daemon's socket: the one of --socket, or else the one that `ThumbcacheSocket` locates.
    func socket(_ options: DaemonOptions) throws(Failure) -> String {
        guard let named = options.socket else { return ThumbcacheSocket.path(variable: variable) }
        guard !named.isEmpty else { throw Failure(.usage, "--socket is empty; name the daemon's socket") }
        return named
    }

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
        let path = try socket(options)
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
