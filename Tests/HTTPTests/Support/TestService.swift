import CacheFakes
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_http

/// The service's server with a fake daemon and a manual clock.
struct TestService: Sendable {
    let server: HTTPServer
    let status: Status
    let daemon: FakeDaemon
    private let clock: NIOLockedValueBox<NIODeadline>

    static func run(
        limits: HTTPLimits = HTTPLimits(), hosts: [String] = [], text: String = "thumbcached_uptime_seconds 7\n",
        _ body: (TestService) async throws -> Void
    ) async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let clock = NIOLockedValueBox(NIODeadline.uptimeNanoseconds(1_000_000_000_000))
        let now: @Sendable () -> NIODeadline = { clock.withLockedValue { $0 } }
        let daemon = FakeDaemon(text: text)
        let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let scraper = Scraper(loop: loop) { await daemon.reply(at: now()) }
        let status = Status(scraper: scraper, now: now, log: log)
        let check = HeadCheck(hosts: HostRule(hosts.compactMap { HostName($0) }), hostSetting: "figures.hosts")
        let server = try await HTTPServer.start(
            on: loop, at: try .anyPort, setting: "images.listen", limits: limits, now: now, wallClock: { 784_111_777 }
        ) { status.respond(to: FiguresRoute($0, check)) }.get()
        let service = TestService(server: server, status: status, daemon: daemon, clock: clock)
        do {
            try await body(service)
        } catch {
            daemon.unblock()
            try await server.close().get()
            throw error
        }
        daemon.unblock()
        try await server.close().get()
    }

    func connect(autoRead: Bool = true, closes: Bool = true) async throws -> TestPeer {
        try await TestPeer.connect(to: server.address, autoRead: autoRead, closes: closes)
    }

    /// Advances the clock and applies the timeouts.
    ///
    /// First waits until all responses count as written, which is when a connection becomes idle: a peer may have read
    /// a response before.
    /// - Parameter isWriting: whether a peer reads no response, so that there is nothing to wait for.
    func pass(_ time: TimeAmount, isWriting: Bool = false) async throws {
        if !isWriting {
            while try await server.phases().get().contains(.write) { await Task.yield() }
        }
        clock.withLockedValue { $0 = $0 + time }
        try await server.sweep().get()
    }

    func count() async throws -> Int { try await server.phases().get().count }

    /// Waits until the server has this many connections. A closed one is removed in a later loop iteration.
    func waitForConnections(_ count: Int) async throws {
        while try await self.count() != count { await Task.yield() }
    }
}

extension ListeningPlace {
    /// A port of 127.0.0.1 that the kernel chooses.
    static var anyPort: ListeningPlace {
        get throws { .address(try #require(ListenAddress("127.0.0.1:0"))) }
    }
}

/// A daemon whose replies a test can block.
final class FakeDaemon: Sendable {
    private struct State {
        var gate: Gate?
        var failure: Scrape.Failure?
    }

    private let text: String
    private let arrivals = Gate()
    private let state = NIOLockedValueBox(State())

    init(text: String) { self.text = text }

    var requests: Int { arrivals.arrived }

    func fail(reason: String) { state.withLockedValue { $0.failure = Scrape.Failure(reason: reason) } }

    /// Holds back replies until ``unblock()``.
    func block() { state.withLockedValue { $0.gate = Gate() } }

    func unblock() { state.withLockedValue { $0.gate.take() }?.open() }

    /// Waits until this many requests have arrived.
    func receives(_ count: Int) async { await arrivals.reached(by: count) }

    func reply(at moment: NIODeadline) async -> Scrape {
        arrivals.arrive()
        await state.withLockedValue { $0.gate }?.opened()
        if let failure = state.withLockedValue({ $0.failure }) {
            return Scrape(moment: moment, outcome: .failure(failure))
        }
        return Scrape(moment: moment, text: text)
    }
}

extension Scrape {
    /// The scrape of a text.
    init(moment: NIODeadline, text: String) {
        do throws(ThumbcacheError) {
            self.init(moment: moment, outcome: .success(.init(text: text, metrics: try ThumbcacheMetrics(text))))
        } catch {
            self.init(moment: moment, outcome: .failure(.init(error, socket: "/s")))
        }
    }
}
