import NIOConcurrencyHelpers
import NIOCore
import ThumbcacheProtocol

/// Connections that a task has for itself for a time.
///
/// A GET that may wait for a download gets one: the daemon answers in order, so that nobody else's reply stands behind
/// that wait, and the connection can be closed when the task is cancelled, by which the daemon learns of it.
final class ConnectionPool: Sendable {
    private let connector: Connector
    private let permits: Permits
    private let idle = NIOLockedValueBox<[WireConnection]>([])

    /// - Parameter limit: connections at once; whoever comes when all are taken waits.
    init(_ connector: Connector, limit: Int) {
        self.connector = connector
        permits = Permits(limit)
    }

    /// Who waits for a connection gets none any more.
    func stop() { permits.stop() }

    /// Runs the body with a connection of its own.
    /// - Parameter body: says whether others may have the connection behind it. A closed one nobody gets.
    func withConnection<Success: Sendable>(
        _ body: (WireConnection) async -> (outcome: Success, isReusable: Bool)
    ) async throws(ThumbcacheError) -> Success {
        try await permits.acquire()
        defer { permits.release() }
        let connection = try await take()
        let (outcome, isReusable) = await body(connection)
        if isReusable, connection.isActive {
            idle.withLockedValue { $0.append(connection) }
        } else if connection.isActive {
            connection.close()
        }
        return outcome
    }

    private func take() async throws(ThumbcacheError) -> WireConnection {
        let kept: WireConnection? = idle.withLockedValue { idle in
            // The one used last: what lies below may have been closed by the daemon, as idle.
            while let connection = idle.popLast() {
                if connection.isActive { return connection }
            }
            return nil
        }
        if let kept { return kept }
        return try await connector.open()
    }
}
