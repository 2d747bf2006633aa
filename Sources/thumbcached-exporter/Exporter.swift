import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOHTTP1
import NIOPosix
@_spi(Wire) import Thumbcache

/// Wires the program: a client of the daemon, the samples of the last minutes, and a server of HTTP.
struct Exporter: Sendable {
    /// Between two samples of the page's plots.
    static let samplePause = TimeAmount.seconds(5)
    /// For the daemon. One whose fetcher is stuck answers after 20 s.
    private static var questionTime: Duration { .seconds(25) }

    let socket: String
    let address: ListenAddress
    let hosts: [HostName]
    let log: Logger

    /// Serves until a signal ends the process. Nothing is lost with it.
    func run() throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        var configuration = ThumbcacheConfiguration()
        configuration.requestTimeout = Self.questionTime
        configuration.libraryName = "thumbcached-exporter"
        // A daemon that has come back is asked soon.
        configuration.longestPause = .seconds(2)
        let client = ThumbcacheClient(path: socket, configuration: configuration, logger: log)
        Task { await client.run() }
        let scraper = Scraper(loop: loop, client: client, socket: socket)
        let status = Status(scraper: scraper, log: log)
        let hosts = HostRule(hosts + [address.host])
        let server = try HTTPServer.start(
            on: loop, at: address.socketAddress, limits: HTTPLimits(), now: { .now() },
            wallClock: { nanoseconds(of: CLOCK_REALTIME) / 1_000_000_000 },
            respond: { status.respond(to: Route($0, hosts: hosts)) }
        ).wait()
        log.notice(
            "serving",
            metadata: ["address": "\(server.address.literal)", "socket": "\(socket)"])
        loop.scheduleRepeatedTask(initialDelay: .zero, delay: Self.samplePause) { _ in status.sample() }
        try server.closed.wait()
    }
}

extension SocketAddress {
    /// With its port, as a URL has it.
    var literal: String {
        let (host, port) = (ipAddress ?? "", port ?? 0)
        return host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}
