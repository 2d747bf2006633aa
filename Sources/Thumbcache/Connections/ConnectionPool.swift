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
    /// - Parameter body: returns whether the connection may be reused.
    func withConnection<Success: Sendable>(
        _ body: (WireConnection) async -> (outcome: Success, isReusable: Bool)
    ) async throws(ThumbcacheError) -> Success {
        try await permits.acquire()
        defer { permits.release() }
        let connection = try await connection()
        let (outcome, isReusable) = await body(connection)
        if isReusable, connection.isActive {
            idle.withLockedValue { $0.append(connection) }
        } else if connection.isActive {
            connection.close()
        }
        return outcome
    }

    private func connection() async throws(ThumbcacheError) -> WireConnection {
        let kept: WireConnection? = idle.withLockedValue { idle in
            // The most recently used one: the daemon may have closed older ones as idle.
            while let connection = idle.popLast() {
                if connection.isActive { return connection }
            }
            return nil
        }
        if let kept { return kept }
        return try await connector.open()
    }
}
