import ArgumentParser
import Glibc
import LinuxSupport
@_spi(Wire) import Thumbcache

struct Top: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show the daemon's activity, updated every second.",
        discussion: """
            Shows requests by source of the image, with the percentiles p50, p95 and p99 of their latencies in the last \
            second (upper bounds of histogram buckets), hit rate, downloads, memory, disk, open circuit breakers, and \
            logouts that are not durable yet. A larger terminal shows more. Admins (the daemon's user and \
            access.admins) see the whole daemon, other users their own statistics. Alarms are red. q or ^C exits.

            With --once, prints one screen of plain text about the last second. With --json, prints one object per \
            second, or with --once a single object.
            """)

    @Flag(help: "Print one screen and exit.")
    var once = false

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        let terminal = Terminal(STDOUT_FILENO, variable: environment.variable)
        guard once || output.json || terminal.hasCursor else {
            throw Failure(
                .usage, "top requires a terminal with cursor control; use --once or --json")
        }
        var signal: CInt?
        try await environment.withDaemon(daemon, within: 10) { daemon throws(Failure) in
            let source = try await TopSource(daemon)
            if once || output.json {
                try await print(source, terminal)
            } else {
                signal = try await draw(source, terminal)
            }
        }
        if let signal { terminate(by: signal) }
    }

    private func print(_ source: TopSource, _ terminal: Terminal) async throws(Failure) {
        var before = try await source.figures()
        while await second() {
            let now = try await source.figures()
            let size = terminal.isTerminal ? terminal.size : .standard
            let screen = TopScreen(now: now, before: before, clock: Times.Moment.now.local)
            let text = output.json ? [now.json(since: before)] : screen.lines(size).map(\.text)
            guard try writeUnlessClosed(text.map { $0 + "\n" }.joined()), !once else { return }
            before = now
        }
    }

    /// Returns the signal to terminate the process with; nil for a normal exit.
    private func draw(_ source: TopSource, _ terminal: Terminal) async throws(Failure) -> CInt? {
        var (before, now): (TopFigures?, TopFigures) = (nil, try await source.figures())
        var trouble: String?
        let (events, sink) = AsyncStream.makeStream(of: TopEvent.self, bufferingPolicy: .bufferingNewest(8))
        /// Finishing the stream ensures that no later event displaces this one from the buffer.
        @Sendable func quit(_ signal: CInt?) {
            sink.yield(.quit(signal))
            sink.finish()
        }
        let signals = Signals([SIGINT, SIGTERM, SIGHUP, SIGWINCH]) { signal in
            switch signal {
            case SIGWINCH: sink.yield(.resize)
            case SIGINT: quit(nil)
            default: quit(signal)
            }
        }
        defer { withExtendedLifetime(signals) {} }
        // A separate task, so that the loop can quit while the daemon does not respond.
        let polling = Task {
            while await second() {
                do throws(Failure) {
                    sink.yield(.figures(try await source.figures()))
                } catch {
                    sink.yield(.trouble(error.message))
                }
            }
        }
        defer { polling.cancel() }
        let screen = try FullScreen(terminal) { quit(nil) }
        defer { screen.leave() }
        func show() throws(Failure) {
            let text = TopScreen(now: now, before: before, clock: Times.Moment.now.local, trouble: trouble)
            try screen.show(text.lines(terminal.size))
        }
        try show()
        for await event in events {
            switch event {
            case .quit(let signal): return signal
            case .resize: break
            case .figures(let next): (before, now, trouble) = (now, next, nil)
            case .trouble(let reason): trouble = PlainText.escape(reason)
            }
            try show()
        }
        return nil
    }

    /// Terminates the process by a signal, after the terminal has been restored.
    private func terminate(by number: CInt) {
        signal(number, SIG_DFL)
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, number)
        pthread_sigmask(SIG_UNBLOCK, &signals, nil)
        raise(number)
    }
}

private enum TopEvent: Sendable {
    case figures(TopFigures), trouble(String), resize
    /// The signal to terminate the process with, if any.
    case quit(CInt?)
}

/// Waits a second. Returns false if the task was cancelled.
private func second() async -> Bool {
    do {
        try await Task.sleep(for: .seconds(1))
        return true
    } catch {
        return false
    }
}

/// Queries statistics: METRICS for admins, INFO for other users.
private struct TopSource {
    private let daemon: ConnectedDaemon
    private let isAdmin: Bool

    init(_ daemon: ConnectedDaemon) async throws(Failure) {
        self.daemon = daemon
        isAdmin = try await daemon.perform { client throws(ThumbcacheError) in
            do throws(ThumbcacheError) {
                _ = try await client.metrics()
                return true
            } catch .server(.denied, _) {
                return false
            }
        }
    }

    func figures() async throws(Failure) -> TopFigures {
        let isAdmin = isAdmin
        return try await daemon.perform { client throws(ThumbcacheError) in
            let text = try await isAdmin ? client.metrics() : client.info()
            let time = Double(nanoseconds(of: CLOCK_MONOTONIC)) / 1e9
            return isAdmin ? TopFigures(try ThumbcacheMetrics(text), time: time) : TopFigures(info: text, time: time)
        }
    }
}
