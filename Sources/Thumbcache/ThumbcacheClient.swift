import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ThumbcacheProtocol

/// A client of thumbcached, the cache of profile pictures that ends when its user logs out.
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
/// Many tasks may use it at once. Short commands of all of them share one connection, one behind the other, and are
/// answered in order. A GET that may wait for a download has a connection for itself, so that nobody waits behind it,
/// and so that its end can be told to the daemon: see ``get(_:_:size:url:wait:policy:)``.
///
/// A connection that breaks fails what was on it, with ``ThumbcacheError/connectionLost``, and nothing is asked twice
/// on its own: every command may be asked again by whoever still wants it. The next request connects anew; after a
/// failed attempt not before a pause, for whose end it waits.
public final class ThumbcacheClient: ThumbcacheCommands {
    let configuration: ThumbcacheConfiguration
    let connector: Connector
    let logger: Logger
    private let shared: SharedConnection
    private let pool: ConnectionPool
    private let inFlight: InFlight
    private let hasRun = NIOLockedValueBox(false)
    private let observers = NIOLockedValueBox<[ObjectIdentifier: @Sendable (ImageChange) -> Void]>([:])

    /// Makes a client that does nothing before it is run.
    /// - Parameters:
    ///   - path: the daemon's Unix socket, of 107 bytes at most.
    ///   - logger: told of broken connections, at debug; never of ids, tokens or contents.
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

    /// Runs the client until the task is cancelled: it holds the event loop and every connection. Requests that come
    /// before wait for it, those that come behind fail with ``ThumbcacheError/notRunning``, as do those that are on
    /// their way then. A client runs once; a second call returns at once.
    ///
    /// It has the shape of a service of swift-service-lifecycle.
    public func run() async {
        let isFirst = hasRun.withLockedValue { hasRun in
            defer { hasRun = true }
            return !hasRun
        }
        guard isFirst else { return }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        connector.start(group.next())
        _ = await OneShot<Never>().wait()
        await stop(group)
    }

    /// Nothing is on its way when the loop ends: what was sent to it then would never be answered. (The task is
    /// cancelled, so that nothing here may look at that.)
    private func stop(_ group: MultiThreadedEventLoopGroup) async {
        let drained = inFlight.stop()
        // Whoever has a connection lent may never look at it again.
        pool.stop()
        await connector.stop()
        await Task { _ = await drained.wait() }.value
        do {
            try await group.shutdownGracefully()
        } catch {
            logger.error("the event loop did not end", metadata: ["error": "\(error)"])
        }
    }

    /// Sends a request and waits for its reply. The methods for each command do this.
    public func reply(to request: ThumbcacheRequest) async throws(ThumbcacheError) -> ThumbcacheReply {
        try await counted { () async throws(ThumbcacheError) in
            let limit = request.timeout ?? self.configuration.requestTimeout
            guard request.mayWait else { return try await self.shared.reply(to: request, within: limit) }
            return try await within(limit) { () async throws(ThumbcacheError) in
                try await self.leased { connection throws(ThumbcacheError) in
                    try await connection.reply(to: request, closing: true)
                }
            }
        } changing: {
            request.change
        }
    }

    /// Gives the body a connection for itself, on which commands are done in the order in which they are sent.
    ///
    /// It counts as one of ``ThumbcacheConfiguration/maximumConnections``. When the task is cancelled while it waits
    /// for a reply, the connection is closed.
    ///
    /// - Throws: what the body throws, and ``ThumbcacheError`` when there is no connection.
    public func withConnection<Success: Sendable>(
        _ body: (ThumbcacheConnection) async throws -> Success
    ) async throws -> Success {
        let result: Result<Success, any Error> = try await pool.withConnection { wire in
            let connection = ThumbcacheConnection(wire, self)
            do {
                return (.success(try await body(connection)), connection.end())
            } catch {
                return (.failure(error), connection.end())
            }
        }
        return try result.get()
    }

    private func leased(
        _ body: @Sendable (WireConnection) async throws(ThumbcacheError) -> Value
    ) async throws(ThumbcacheError) -> Value {
        let result: Result<Value, ThumbcacheError> = try await pool.withConnection { connection in
            do throws(ThumbcacheError) {
                return (.success(try await body(connection)), true)
            } catch {
                return (.failure(error), false)
            }
        }
        return try result.get()
    }

    /// What every request goes through, on whichever connection.
    func counted(
        _ body: () async throws(ThumbcacheError) -> Value, changing change: () -> ImageChange?
    ) async throws(ThumbcacheError) -> ThumbcacheReply {
        try inFlight.begin()
        defer { inFlight.end() }
        // Whatever the outcome: a request whose reply is lost may have been done. And before the caller knows, so that
        // whoever has a receipt finds nothing old in memory.
        defer { change().map(announce) }
        do throws(ThumbcacheError) {
            return ThumbcacheReply(value: try await body().orServerError())
        } catch .connectionLost where connector.isStopped {
            throw .notRunning
        }
    }
}

extension ThumbcacheClient {
    /// Has somebody told of every change that goes through this client, before whoever asked for it is answered. The
    /// daemon's events tell of all changes, but on another connection, so perhaps a moment later.
    func observe(_ key: ObjectIdentifier, _ observer: (@Sendable (ImageChange) -> Void)?) {
        observers.withLockedValue { $0[key] = observer }
    }

    private func announce(_ change: ImageChange) {
        for observer in observers.withLockedValue({ Array($0.values) }) { observer(change) }
    }
}
