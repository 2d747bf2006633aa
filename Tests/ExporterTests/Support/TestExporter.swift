import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
@_spi(Wire) import Thumbcache

@testable import thumbcached_exporter

/// The exporter's server with a daemon and a clock that a test plays.
struct TestExporter: Sendable {
    let server: HTTPServer
    let status: Status
    let daemon: PlayedDaemon
    private let clock: NIOLockedValueBox<NIODeadline>

    static func run(
        limits: HTTPLimits = HTTPLimits(), hosts: [String] = [], text: String = "thumbcached_uptime_seconds 7\n",
        _ body: (TestExporter) async throws -> Void
    ) async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let clock = NIOLockedValueBox(NIODeadline.uptimeNanoseconds(1_000_000_000_000))
        let now: @Sendable () -> NIODeadline = { clock.withLockedValue { $0 } }
        let daemon = PlayedDaemon(text: text)
        let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let scraper = Scraper(loop: loop) { await daemon.answer(at: now()) }
        let status = Status(scraper: scraper, now: now, log: log)
        let rule = HostRule(hosts.compactMap { HostName($0) })
        let server = try await HTTPServer.start(
            on: loop, at: try SocketAddress(ipAddress: "127.0.0.1", port: 0), limits: limits, now: now,
            wallClock: { 784_111_777 }
        ) { status.respond(to: Route($0, hosts: rule)) }.get()
        let exporter = TestExporter(server: server, status: status, daemon: daemon, clock: clock)
        do {
            try await body(exporter)
        } catch {
            daemon.open()
            try await server.close().get()
            throw error
        }
        daemon.open()
        try await server.close().get()
    }

    func connect(autoRead: Bool = true, closes: Bool = true) async throws -> TestPeer {
        try await TestPeer.connect(to: server.address, autoRead: autoRead, closes: closes)
    }

    /// Lets time go by, and ends what has waited too long.
    func pass(_ time: TimeAmount) async throws {
        clock.withLockedValue { $0 = $0 + time }
        try await server.sweep().get()
    }

    func count() async throws -> Int { try await server.phases().get().count }

    /// Waits until there are so many connections: one that was closed is forgotten in a turn of the loop of its own.
    func settles(at count: Int) async throws {
        while try await self.count() != count { await Task.yield() }
    }
}

/// What the daemon says, once the test lets it.
final class PlayedDaemon: Sendable {
    private struct State {
        var questions = 0
        var isShut = false
        var waiting: [CheckedContinuation<Void, Never>] = []
        var asked: [(count: Int, CheckedContinuation<Void, Never>)] = []
        var silence: Scrape.Silence?
    }

    private let text: String
    private let state = NIOLockedValueBox(State())

    init(text: String) { self.text = text }

    var questions: Int { state.withLockedValue { $0.questions } }

    func fall(silent reason: String?) { state.withLockedValue { $0.silence = reason.map(Scrape.Silence.init) } }

    /// From now on a question waits for ``open()``.
    func shut() { state.withLockedValue { $0.isShut = true } }

    func open() {
        let waiting = state.withLockedValue { state in
            defer { (state.isShut, state.waiting) = (false, []) }
            return state.waiting
        }
        for one in waiting { one.resume() }
    }

    /// Waits until so many questions have come.
    func isAsked(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let isThere = state.withLockedValue { state in
                if state.questions < count { state.asked.append((count, continuation)) }
                return state.questions >= count
            }
            if isThere { continuation.resume() }
        }
    }

    func answer(at moment: NIODeadline) async -> Scrape {
        let told = state.withLockedValue { state in
            state.questions += 1
            let told = state.asked.filter { $0.count <= state.questions }
            state.asked.removeAll { $0.count <= state.questions }
            return told
        }
        for one in told { one.1.resume() }
        await withCheckedContinuation { continuation in
            let isOpen = state.withLockedValue { state in
                if state.isShut { state.waiting.append(continuation) }
                return !state.isShut
            }
            if isOpen { continuation.resume() }
        }
        if let silence = state.withLockedValue({ $0.silence }) {
            return Scrape(moment: moment, outcome: .failure(silence))
        }
        return Scrape(moment: moment, text: text)
    }
}

extension Scrape {
    /// What becomes of a text that a daemon says.
    init(moment: NIODeadline, text: String) {
        do throws(ThumbcacheError) {
            self.init(moment: moment, outcome: .success(.init(text: text, metrics: try ThumbcacheMetrics(text))))
        } catch {
            self.init(moment: moment, outcome: .failure(.init(error, socket: "/s")))
        }
    }
}
