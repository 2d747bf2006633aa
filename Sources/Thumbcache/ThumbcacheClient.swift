import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ThumbcacheProtocol

/// A client of thumbcached, the per-user cache of profile images.
///
/// ```swift
/// let client = ThumbcacheClient(path: "/run/thumbcached/thumbcached.sock")
/// await withTaskGroup { group in
///     group.addTask { await client.run() }
///     …
///     group.cancelAll()
/// }
/// ```
///
/// Any number of tasks may use it concurrently. Their short commands share one connection and are pipelined. A GET that
/// may wait for a download or a rendition uses a connection of its own, so that it delays no other request and can be
/// cancelled in the daemon; see ``get(_:_:size:url:wait:policy:)``.
///
/// A lost connection fails its requests with ``ThumbcacheError/connectionLost``. Requests are not retried
/// automatically; retrying any command is safe. The next request opens a new connection, after a backoff if the
/// previous attempt failed.
public final class ThumbcacheClient: ThumbcacheCommands {
    let configuration: ThumbcacheConfiguration
    let connector: Connector
    let logger: Logger
    private let shared: SharedConnection
    private let pool: ConnectionPool
    private let inFlight: InFlight
    private let hasRun = NIOLockedValueBox(false)
    private let observers = NIOLockedValueBox<[ObjectIdentifier: @Sendable (ImageChange) -> Void]>([:])

    /// Creates a client. It does nothing until ``run()`` is called.
    /// - Parameters:
    ///   - path: the path of the daemon's Unix socket, at most 107 bytes.
    ///   - logger: receives failed connection attempts at level debug; never ids, tokens or contents.
    public init(
        path: String, configuration: ThumbcacheConfiguration = ThumbcacheConfiguration(),
        logger: Logger = Logger(label: "thumbcache") { _ in SwiftLogNoOpLogHandler() }
    ) {
        self.configuration = configuration
        self.logger = logger
        inFlight = InFlight()
        connector = Connector(path: path, configuration: configuration, logger: logger, inFlight: inFlight)
        shared = SharedConnection(connector, depth: configuration.maximumPipelined)
        pool = ConnectionPool(connector, limit: configuration.maximumConnections)
    }

    /// Runs the client until the task is cancelled. Requests made earlier wait for it. Requests in flight when it ends,
    /// and later ones, fail with ``ThumbcacheError/notRunning``. A client runs once; a second call returns immediately.
    ///
    /// The method fits the `Service` protocol of swift-service-lifecycle.
    public func run() async {
        guard isFirstRun() else { return }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        await serve(on: group.next())
        do {
            try await group.shutdownGracefully()
        } catch {
            logger.error("the event loop did not end", metadata: ["error": "\(error)"])
        }
    }

    /// Runs the client as ``run()`` does, on an event loop that outlives it.
    @_spi(Wire) public func run(on loop: any EventLoop) async {
        if isFirstRun() { await serve(on: loop) }
    }

    private func isFirstRun() -> Bool {
        hasRun.withLockedValue { hasRun in
            defer { hasRun = true }
            return !hasRun
        }
    }

    private func serve(on loop: any EventLoop) async {
        connector.start(loop)
        _ = await OneShot<Never>().wait()
        await stop()
    }

    /// Waits for all operations, because an event loop that has ended would never complete them. The task is already
    /// cancelled, so this must not check for cancellation.
    private func stop() async {
        let drained = inFlight.stop()
        // The body of `withConnection` may never finish by itself, so waiting tasks are failed first.
        pool.stop()
        await connector.stop()
        await Task { _ = await drained.wait() }.value
    }

    /// Sends a request and waits for its reply. The methods for each command do this.
    public func reply(to request: ThumbcacheRequest) async throws(ThumbcacheError) -> ThumbcacheReply {
        try await counted { () async throws(ThumbcacheError) in
            let limit = request.timeout ?? self.configuration.requestTimeout
            guard request.mayWait else { return try await self.shared.reply(to: request, within: limit) }
            return try await self.leased(within: limit) { connection, deadline throws(ThumbcacheError) in
                try await connection.reply(to: request, closing: true, by: deadline)
            }
        } changing: {
            request.change
        }
    }

    /// Runs the body with a connection of its own, on which commands are executed in order.
    ///
    /// The connection counts towards ``ThumbcacheConfiguration/maximumConnections``. It is closed if the task is
    /// cancelled while it waits for a reply.
    ///
    /// - Throws: the error of the body, or ``ThumbcacheError`` if no connection can be opened.
    public func withConnection<Success: Sendable>(
        _ body: (ThumbcacheConnection) async throws -> Success
    ) async throws -> Success {
        let result: Result<Success, any Error> = try await pool.withConnection(within: nil) { wire in
            let connection = ThumbcacheConnection(wire, self)
            do {
                return (.success(try await body(connection)), connection.end())
            } catch {
                return (.failure(error), connection.end())
            }
        }
        return try result.get()
    }

    /// - Parameter body: receives the deadline that the limit sets.
    private func leased(
        within limit: Duration?,
        _ body: @Sendable (WireConnection, NIODeadline?) async throws(ThumbcacheError) -> Value
    ) async throws(ThumbcacheError) -> Value {
        let deadline = limit.map { NIODeadline.now() + TimeAmount($0) }
        let result: Result<Value, ThumbcacheError> = try await pool.withConnection(within: limit) { connection in
            do throws(ThumbcacheError) {
                return (.success(try await body(connection, deadline)), true)
            } catch {
                return (.failure(error), false)
            }
        }
        return try result.get()
    }

    /// Performs a request of any connection: counts it, maps errors and announces its change.
    func counted(
        _ body: () async throws(ThumbcacheError) -> Value, changing change: () -> ImageChange?
    ) async throws(ThumbcacheError) -> ThumbcacheReply {
        try inFlight.begin()
        defer { inFlight.end() }
        // Announced after every outcome, since a request whose reply was lost may have taken effect, and before the
        // caller resumes, so that it finds no stale image in memory.
        defer { change().map(announce) }
        do throws(ThumbcacheError) {
            return ThumbcacheReply(value: try await body().orServerError())
        } catch .connectionLost where connector.isStopped {
            throw .notRunning
        }
    }
}

extension ThumbcacheClient {
    /// Registers an observer of the changes made through this client, or removes it with nil. It is called before the
    /// request returns. Events of the daemon report all changes, but possibly later.
    func observe(_ key: ObjectIdentifier, _ observer: (@Sendable (ImageChange) -> Void)?) {
        observers.withLockedValue { $0[key] = observer }
    }

    private func announce(_ change: ImageChange) {
        for observer in observers.withLockedValue({ Array($0.values) }) { observer(change) }
    }
}
