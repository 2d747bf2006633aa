import Glibc
import LinuxSupport
import NIOCore
@_spi(Wire) import Thumbcache
import ThumbcacheProtocol

/// The dependencies of a command, and the operations that commands share.
struct Environment {
    /// Returns the value of an environment variable.
    let variable: (_ name: String) -> String?

    /// Default request timeout, in seconds: downloads and logouts of many users take time. Without a timeout, a logout
    /// hook would hang on a daemon that is stuck.
    static let timeout = 600

    /// The path of `--socket`, or else the path that `ThumbcacheSocket` finds.
    func socket(_ options: DaemonOptions) throws(Failure) -> String {
        guard let named = options.socket else { return ThumbcacheSocket.path(variable: variable) }
        guard !named.isEmpty else {
            throw Failure(.usage, "--socket is empty; expected the path of the daemon's socket")
        }
        return named
    }

    /// Sends one request and returns the daemon's reply.
    /// - Parameter timeout: seconds, including the time to connect.
    func reply(
        to request: [ByteBuffer], _ options: DaemonOptions, within timeout: Int = timeout
    ) async throws(Failure) -> Value {
        try await withDaemon(options, within: timeout) { daemon throws(Failure) in
            try await daemon.perform { client throws(ThumbcacheError) in
                try await client.reply(to: ThumbcacheRequest(request)).value
            }
        }
    }

    /// Runs the body with a client of the daemon. Each of its requests may take `timeout` seconds.
    func withDaemon<Success>(
        _ options: DaemonOptions, within timeout: Int = timeout,
        _ body: (ConnectedDaemon) async throws(Failure) -> Success
    ) async throws(Failure) -> Success {
        let path = try socket(options)
        var configuration = ThumbcacheConfiguration()
        configuration.requestTimeout = .seconds(timeout)
        configuration.connectTimeout = .seconds(timeout)
        // CLIENT LIST does not need the name of a client that sends one request.
        configuration.libraryName = nil
        // The event loop ignores SIGPIPE for the whole process. Restored, so that a closed pipe ends this program.
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

    /// Returns the failure for a missing image; with `--json`, first prints `null`.
    func noImage(_ options: OutputOptions, _ reason: String) throws(Failure) -> Failure {
        if options.json { try show(.null, options) }
        return Failure(.noImage, reason)
    }

    /// Prints a receipt. The command has taken effect, so a failed write is only a warning.
    func showReceipt(_ receipt: Value, _ options: OutputOptions, after fact: String) {
        signal(SIGPIPE, SIG_IGN)
        do throws(Failure) {
            try show(receipt, options)
        } catch {
            report("thumbcachectl: \(fact), but \(error.message)", .warning)
        }
    }

    /// Writes a message of one or more lines to standard error; in the journal it gets the priority.
    func report(_ message: String, _ priority: Journal.Priority) {
        let isJournal = Journal.isConnected(STDERR_FILENO, to: variable("JOURNAL_STREAM"))
        do throws(Failure) {
            try write(Array(Journal.lines(message, priority, toJournal: isJournal).utf8), to: STDERR_FILENO)
        } catch {
            // Nothing is left to report to. The exit status still tells the outcome.
        }
    }
}

/// A running client of the daemon.
struct ConnectedDaemon {
    let client: ThumbcacheClient
    let path: String
    let timeout: Int

    func perform<Success>(
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

/// Writes text of a command that runs until it is stopped. Returns false if the reader has closed its end.
func writeUnlessClosed(_ text: String, to descriptor: Int32 = STDOUT_FILENO) throws(Failure) -> Bool {
    do throws(SystemError) {
        try writeAll(Array(text.utf8), to: descriptor)
        return true
    } catch {
        if error.code == EPIPE { return false }
        throw Failure(.usage, "cannot write the output: \(error.reason)")
    }
}
