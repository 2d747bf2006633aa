import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOHTTP1
import NIOPosix
@_spi(Wire) import Thumbcache

/// The program's composition: two HTTP servers, each with a client of the daemon.
struct Service: Sendable {
    /// The interval between samples for the page's plots.
    static let samplePause = TimeAmount.seconds(5)
    /// The timeout of METRICS. With a stuck fetcher, the daemon replies after 20 s.
    private static var metricsTimeout: Duration { .seconds(25) }
    /// Concurrent requests for images in the cache, and for others. Each may take the memory of one image.
    private static var mostHits: Int { 32 }
    private static var mostDownloads: Int { 16 }

    let configuration: HTTPConfiguration
    let listeners: Listeners
    /// nil unless `/u/` requires signed URLs.
    let keys: SigningKeys?
    /// The daemon's socket.
    let socket: String
    let log: Logger

    /// Standard streams, listeners, event loops, and the connections to the daemon.
    private static var otherDescriptors: Int { mostHits + mostDownloads + 32 }

    /// Serves until a signal ends the process. There is no state to save.
    func run() throws {
        try raiseOpenFiles()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let servers = [
            try listeners.figures.map { try serveFigures($0, on: loop) },
            try listeners.images.map { try serveImages($0, on: loop) },
        ].compactMap { $0 }
        for server in servers { try server.closed.wait() }
    }

    private func raiseOpenFiles() throws(SystemError) {
        let needed = HTTPLimits().connections + configuration.images.connections + Self.otherDescriptors
        let allowed = try raiseOpenFileLimit(to: needed)
        if allowed < needed {
            log.warning(
                "limit of open files too low; raise LimitNOFILE= in the unit, or lower images.connections",
                metadata: ["limit": "\(allowed)", "needed": "\(needed)"])
        }
    }

    private func serveFigures(_ place: ListeningPlace, on loop: any EventLoop) throws -> HTTPServer {
        let client = client(on: loop, timeout: Self.metricsTimeout)
        let status = Status(scraper: Scraper(loop: loop, client: client, socket: socket), log: log)
        let check = HeadCheck(hosts: HostRule(place, configuration.figures.hosts), hostSetting: "figures.hosts")
        let server = try start(place, HTTPLimits(), on: loop, "figures") { head in
            status.respond(to: FiguresRoute(head, check))
        }
        loop.scheduleRepeatedTask(initialDelay: .zero, delay: Self.samplePause) { _ in status.sample() }
        return server
    }

    private func serveImages(_ place: ListeningPlace, on loop: any EventLoop) throws -> HTTPServer {
        let settings = configuration.images
        // For each request to the daemon, its own limit comes first, then the client's, then the response's.
        let timeout = Duration.milliseconds(settings.wait + 1_000)
        let client = client(on: loop, timeout: timeout, connections: Self.mostDownloads)
        let hits = self.client(on: loop, timeout: timeout, connections: Self.mostHits)
        let images = DaemonImages(client: client, hits: hits, wait: .milliseconds(settings.wait), log: log)
        let rules = ImageRules(
            settings: settings, keys: keys,
            check: HeadCheck(hosts: HostRule(place, settings.hosts), hostSetting: "images.hosts"))
        let transfers = ImageTransfers(limit: settings.memory)
        // On the loop, as the requests, so that an event that arrives before a reply is applied first.
        Task(executorPreference: LoopExecutor(loop: loop)) {
            for await event in client.events() { transfers.apply(event) }
        }
        let service = ImageService(
            rules: rules, loop: loop, transfers: transfers, wallClock: Self.wallClock, lookUp: images.lookUp)
        if settings.logIn {
            let origin = settings.origin.isEmpty ? nil : settings.origin
            let login = SiteLogin(user: ThumbcacheID(settings.user), origin: origin, client: client, log: log)
            Task { await login.run() }
        }
        var limits = HTTPLimits()
        limits.connections = settings.connections
        limits.responseTime = .milliseconds(settings.wait + 2_000)
        return try start(place, limits, on: loop, "images") { service.respond(to: $0) }
    }

    private func start(
        _ place: ListeningPlace, _ limits: HTTPLimits, on loop: any EventLoop, _ what: String,
        respond: @escaping HTTPServer.Handler
    ) throws -> HTTPServer {
        let server = try HTTPServer.start(
            on: loop, at: place, setting: "\(what).listen", limits: limits, now: { .now() }, wallClock: Self.wallClock,
            respond: respond
        ).wait()
        log.notice(
            "serving \(what)", metadata: ["address": "\(server.address.literal)", "socket": "\(socket)"])
        return server
    }

    /// A client that runs as long as the process. Each server has its own, so that a slow METRICS delays no image.
    private func client(on loop: any EventLoop, timeout: Duration, connections: Int? = nil) -> ThumbcacheClient {
        var configuration = ThumbcacheConfiguration()
        configuration.requestTimeout = timeout
        configuration.libraryName = "thumbcached-http"
        // Reconnects soon after the daemon is back.
        configuration.longestPause = .seconds(2)
        if let connections { configuration.maximumConnections = connections }
        let client = ThumbcacheClient(path: socket, configuration: configuration, logger: log)
        Task { await client.run(on: loop) }
        return client
    }

    private static let wallClock: @Sendable () -> Int64 = { nanoseconds(of: CLOCK_REALTIME) / 1_000_000_000 }
}
