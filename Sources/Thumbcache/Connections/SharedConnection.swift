import NIOConcurrencyHelpers
import NIOCore
import ThumbcacheProtocol

/// The connection that pipelines the short requests of all tasks.
final class SharedConnection: Sendable {
    private struct State {
        var connection: WireConnection?
        /// The number of finished connection attempts, and the error of the last one.
        var attempts = 0
        var failure: ThumbcacheError?
    }

    private let connector: Connector
    private let pipeline: Permits
    private let opening = Permits(1)
    private let state = NIOLockedValueBox(State())

    /// - Parameter depth: the maximum number of requests in flight; further requests wait.
    init(_ connector: Connector, depth: Int) {
        self.connector = connector
        pipeline = Permits(depth)
    }

    /// - Parameter limit: the timeout, including connecting; nil for none.
    func reply(to request: ThumbcacheRequest, within limit: Duration?) async throws(ThumbcacheError) -> Value {
        let deadline = limit.map { NIODeadline.now() + TimeAmount($0) }
        let mayBegin = pipeline.tryAcquire()
        let connection: WireConnection
        if mayBegin, let active {
            // The common case avoids `within`, whose tasks cost more than the rest of a request.
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
        // The permit is released when the reply arrives: otherwise cancelled tasks could exceed the limit.
        return try await connection.reply(to: request, closing: false, by: deadline) { [pipeline] in pipeline.release()
        }
    }

    private var active: WireConnection? {
        state.withLockedValue { $0.connection.flatMap { $0.isActive ? $0 : nil } }
    }

    /// The first task without a connection opens it; others wait for the result.
    private func current() async throws(ThumbcacheError) -> WireConnection {
        if let active { return active }
        let before = state.withLockedValue { $0.attempts }
        try await opening.acquire()
        defer { opening.release() }
        if let active { return active }
        let (attempts, failure) = state.withLockedValue { ($0.attempts, $0.failure) }
        // The attempt failed while this task waited. Later requests start a new attempt.
        if attempts != before, let failure { throw failure }
        do throws(ThumbcacheError) {
            let connection = try await connector.open()
            state.withLockedValue { ($0.connection, $0.attempts, $0.failure) = (connection, $0.attempts + 1, nil) }
            return connection
        } catch {
            // A cancellation says nothing about the daemon; the next task tries again.
            if error != .cancelled {
                state.withLockedValue { ($0.attempts, $0.failure) = ($0.attempts + 1, error) }
            }
            throw error
        }
    }
}
