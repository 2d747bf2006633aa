import NIOConcurrencyHelpers
import NIOCore
import ThumbcacheProtocol

/// A connection for the body of ``ThumbcacheClient/withConnection(_:)``. Commands are executed in order; each sees the
/// effects of earlier LOGIN, LOGOUT, PURGE and PUT commands.
public final class ThumbcacheConnection: ThumbcacheCommands {
    private struct State {
        var hasEnded = false
        var isReusable = true
        /// The number of requests in flight.
        var underWay = 0
    }

    private let connection: WireConnection
    private let client: ThumbcacheClient
    private let state = NIOLockedValueBox(State())

    init(_ connection: WireConnection, _ client: ThumbcacheClient) {
        (self.connection, self.client) = (connection, client)
    }

    /// Sends a request and waits for its reply. The methods for each command do this.
    ///
    /// A cancellation or a timeout closes the connection, since a later reply could not be matched.
    public func reply(to request: ThumbcacheRequest) async throws(ThumbcacheError) -> ThumbcacheReply {
        let mayBegin = state.withLockedValue { state in
            if !state.hasEnded { state.underWay += 1 }
            return !state.hasEnded
        }
        guard mayBegin else {
            throw .invalidRequest("the connection was used after withConnection returned")
        }
        defer { state.withLockedValue { $0.underWay -= 1 } }
        do throws(ThumbcacheError) {
            return try await client.counted { () async throws(ThumbcacheError) in
                let limit = request.timeout ?? self.client.configuration.requestTimeout
                let deadline = limit.map { NIODeadline.now() + TimeAmount($0) }
                return try await self.connection.reply(to: request, closing: true, by: deadline)
            } changing: {
                request.change
            }
        } catch {
            // The event loop is closing the connection; the next user must not get it.
            if case .server = error {} else { state.withLockedValue { $0.isReusable = false } }
            throw error
        }
    }

    /// Logs in as ``ThumbcacheCommands/logIn(_:session:origin:token:refreshToken:)`` does, but the session ends with
    /// this connection: at the latest when ``ThumbcacheClient/withConnection(_:)`` returns, or when this program is
    /// killed.
    public func logInHolding(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil, origin: String? = nil, token: String? = nil,
        refreshToken: String? = nil
    ) async throws(ThumbcacheError) {
        state.withLockedValue { $0.isReusable = false }
        let request = try ThumbcacheRequest.logIn(user, session, origin, token, refreshToken, holds: true)
        try await reply(to: request).value.expectingOK()
    }

    /// Rejects further requests. Returns whether the connection may be reused.
    func end() -> Bool {
        state.withLockedValue { state in
            state.hasEnded = true
            return state.isReusable && state.underWay == 0
        }
    }
}
