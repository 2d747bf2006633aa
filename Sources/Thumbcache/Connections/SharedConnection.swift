import NIOConcurrencyHelpers
import NIOCore
import ThumbcacheProtocol

/// The one connection on which the short requests of all tasks travel, one behind the other.
final class SharedConnection: Sendable {
    private struct State {
        var connection: WireConnection?
        /// Attempts to connect that have ended, and how the last one did.
        var attempts = 0
        var failure: ThumbcacheError?
    }

    private let connector: Connector
    /// Requests whose replies are not there yet.
    private let pipeline: Permits
    private let opening = Permits(1)
    private let state = NIOLockedValueBox(State())

    /// - Parameter depth: requests that may be on their way at once; more wait for a reply.
    init(_ connector: Connector, depth: Int) {
        self.connector = connector
        pipeline = Permits(depth)
    }

    /// - Parameter limit: for all of it; nil for none.
    func reply(to request: ThumbcacheRequest, within limit: Duration?) async throws(ThumbcacheError) -> Value {
        let deadline = limit.map { NIODeadline.now() + TimeAmount($0) }
        let mayBegin = pipeline.acquireAtOnce()
        let connection: WireConnection
        if mayBegin, let active {
            // Nearly always. Tasks that watch over the time would cost more than all the rest of a request.
            connection = active
        } else {
            connection = try await within(limit) { () async throws(ThumbcacheError) in
                if !mayBegin { try await self.pipeline.acquire() }
                do throws(ThumbcacheError) {
                    return try await self.current()
                } catch {
                    self.pipeline.release()
                    throw error
                }
            }
        }
        // Not before the reply is there, wanted or not: otherwise tasks that are cancelled could fill the pipeline.
        return try await connection.reply(to: request, closing: false, by: deadline) { [pipeline] in pipeline.release()
        }
    }

    private var active: WireConnection? {
        state.withLockedValue { $0.connection.flatMap { $0.isActive ? $0 : nil } }
    }

    /// The connection; the first who finds none opens one, and the others wait for that.
    private func current() async throws(ThumbcacheError) -> WireConnection {
        if let active { return active }
        let before = state.withLockedValue { $0.attempts }
        try await opening.acquire()
        defer { opening.release() }
        if let active { return active }
        let (attempts, failure) = state.withLockedValue { ($0.attempts, $0.failure) }
        // It failed while this one waited: the next attempt is for those who come from here on.
        if attempts != before, let failure { throw failure }
        do throws(ThumbcacheError) {
            let connection = try await connector.open()
            state.withLockedValue { ($0.connection, $0.attempts, $0.failure) = (connection, $0.attempts + 1, nil) }
            return connection
        } catch {
            // A cancelled task says nothing of the daemon: whoever is next tries it himself.
            if error != .cancelled {
                state.withLockedValue { ($0.attempts, $0.failure) = ($0.attempts + 1, error) }
            }
            throw error
        }
    }
}
