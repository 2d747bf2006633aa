import NIOConcurrencyHelpers
import NIOCore
import ThumbcacheProtocol

/// Connections that are each used by one task at a time.
///
/// For GETs that may wait for a download: the daemon replies in order, so a shared connection would delay other
/// replies. Closing the connection tells the daemon that the task was cancelled.
final class ConnectionPool: Sendable {
    private let connector: Connector
    private let permits: Permits
    private let idle = NIOLockedValueBox<[WireConnection]>([])

    /// - Parameter limit: the maximum number of connections; further tasks wait.
    init(_ connector: Connector, limit: Int) {
        self.connector = connector
        permits = Permits(limit)
    }

    func stop() { permits.stop() }

    /// Runs the body with a connection of its own.
    /// - Parameters:
    ///   - limit: the timeout of waiting for a connection and opening it; nil for none.
    ///   - body: returns whether the connection may be reused.
    func withConnection<Success: Sendable>(
        within limit: Duration?, _ body: (WireConnection) async -> (outcome: Success, isReusable: Bool)
    ) async throws(ThumbcacheError) -> Success {
        let connection = try await acquire(within: limit)
        defer { permits.release() }
        let (outcome, isReusable) = await body(connection)
        if isReusable, connection.isActive {
            idle.withLockedValue { $0.append(connection) }
        } else if connection.isActive {
            connection.close()
        }
        return outcome
    }

    /// Returns a connection with its permit.
    private func acquire(within limit: Duration?) async throws(ThumbcacheError) -> WireConnection {
        let hasPermit = permits.tryAcquire()
        // The common case avoids `within`, whose tasks cost more than the rest of a request.
        if hasPermit, let kept = takeIdle() { return kept }
        return try await within(limit) { () async throws(ThumbcacheError) in
            if !hasPermit { try await self.permits.acquire() }
            do throws(ThumbcacheError) {
                if let kept = self.takeIdle() { return kept }
                return try await self.connector.open()
            } catch {
                self.permits.release()
                throw error
            }
        }
    }

    /// Returns the most recently used connection, since the daemon may have closed older ones as idle.
    private func takeIdle() -> WireConnection? {
        idle.withLockedValue { idle in
            while let connection = idle.popLast() {
                if connection.isActive { return connection }
            }
            return nil
        }
    }
}
