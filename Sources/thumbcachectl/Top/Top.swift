import ArgumentParser
import Glibc
import LinuxSupport
@_spi(Wire) import Thumbcache

struct Top: DaemonCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show what the daemon is doing, every second.",
        discussion: """
            Requests by where the image came from, with how long they took in the last second (the bound that half of \
            them, 95 and 99 of a hundred stayed within), hits, downloads, memory, disk, circuit breakers that are open, \
            and log-outs that the daemon owes; a larger terminal shows more. That is for admins (the daemon's own user \
            and access.admins); others see figures of their own. Alarms are red. q or ^C ends it.

            With --once one screen of plain text, about the last second. With --json an object a second instead, or \
            one with both.
            """)

    @Flag(help: "Print one screen and end.")
    var once = false

    @OptionGroup var output: OutputOptions
    @OptionGroup var daemon: DaemonOptions

    func run(in environment: Environment) async throws(Failure) {
        let terminal = Terminal(STDOUT_FILENO, variable: environment.variable)
        guard once || output.json || terminal.hasCursor else {
            throw Failure(
                .usage, "top draws on a terminal whose cursor it can move; for others there are --once and --json")
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
        if let signal { end(by: signal) }
    }

    private func print(_ source: TopSource, _ terminal: Terminal) async throws(Failure) {
        var before = try await source.figures()
        while await second() {
            let now = try await source.figures()
            let size = terminal.isTerminal ? terminal.size : .usual
            let screen = TopScreen(now: now, before: before, clock: Times.Moment.now.local)
            let text = output.json ? [now.json(since: before)] : screen.lines(size).map(\.text)
            guard try writeOn(text.map { $0 + "\n" }.joined()), !once else { return }
            before = now
        }
    }

    /// - Returns: the signal by which the process is to end.
    private func draw(_ source: TopSource, _ terminal: Terminal) async throws(Failure) -> CInt? {
        var (before, now): (TopFigures?, TopFigures) = (nil, try await source.figures())
        var trouble: String?
        let (events, sink) = AsyncStream.makeStream(of: TopEvent.self, bufferingPolicy: .bufferingNewest(8))
        /// Nothing comes behind it that could take its place in the buffer.
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
        // Beside the loop, so that it can be quit while the daemon is silent.
        let asking = Task {
            while await second() {
                do throws(Failure) {
                    sink.yield(.figures(try await source.figures()))
                } catch {
                    sink.yield(.trouble(error.message))
                }
            }
        }
        defer { asking.cancel() }
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

    /// As any program that was sent it, now that the terminal is as it was.
    private func end(by number: CInt) {
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
    /// The signal by which the process is to end, if it is to.
    case quit(CInt?)
}

/// - Returns: false when the task was cancelled.
private func second() async -> Bool {
    do {
        try await Task.sleep(for: .seconds(1))
        return true
    } catch {
        return false
    }
}

/// Asks for the figures: METRICS of admins, INFO of others.
private struct TopSource {
    private let daemon: ConnectedDaemon
    private let isAdmin: Bool

    init(_ daemon: ConnectedDaemon) async throws(Failure) {
        self.daemon = daemon
        isAdmin = try await daemon.ask { client throws(ThumbcacheError) in
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
        return try await daemon.ask { client throws(ThumbcacheError) in
            let text = try await isAdmin ? client.metrics() : client.info()
            let time = Double(nanoseconds(of: CLOCK_MONOTONIC)) / 1e9
            return isAdmin ? TopFigures(try ThumbcacheMetrics(text), time: time) : TopFigures(info: text, time: time)
        }
    }
}
