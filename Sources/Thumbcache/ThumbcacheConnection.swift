import NIOConcurrencyHelpers
import ThumbcacheProtocol

/// One connection, lent to the body of ``ThumbcacheClient/withConnection(_:)``. Commands are done in the order in which
/// they are sent; a later one sees what an earlier LOGIN, LOGOUT, PURGE or PUT did.
public final class ThumbcacheConnection: ThumbcacheCommands {
    private struct State {
        var hasEnded = false
        var isReusable = true
        /// Requests whose replies are not there yet.
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
    /// A task that is cancelled, or whose time is over, closes the connection: what is to come on it nobody could tell.
    public func reply(to request: ThumbcacheRequest) async throws(ThumbcacheError) -> ThumbcacheReply {
        let mayBegin = state.withLockedValue { state in
            if !state.hasEnded { state.underWay += 1 }
            return !state.hasEnded
        }
        guard mayBegin else {
            throw .invalidRequest("the connection was lent for the time of withConnection, which is over")
        }
        defer { state.withLockedValue { $0.underWay -= 1 } }
        do throws(ThumbcacheError) {
            return try await client.counted { () async throws(ThumbcacheError) in
                try await within(request.timeout ?? self.client.configuration.requestTimeout) {
                    () async throws(ThumbcacheError) in
                    try await self.connection.reply(to: request, closing: true)
                }
            } changing: {
                request.change
            }
        } catch {
            // It is being closed, which another thread does: whoever had it next would find it closed under him.
            if case .server = error {} else { state.withLockedValue { $0.isReusable = false } }
            throw error
        }
    }

    /// As ``ThumbcacheCommands/logIn(_:session:origin:token:refreshToken:)``, but the session ends with this
    /// connection, at the latest when ``ThumbcacheClient/withConnection(_:)`` returns, also where this program is
    /// killed.
    public func logInHolding(
        _ user: ThumbcacheID, session: ThumbcacheID? = nil, origin: String? = nil, token: String? = nil,
        refreshToken: String? = nil
    ) async throws(ThumbcacheError) {
        state.withLockedValue { $0.isReusable = false }
        let request = try ThumbcacheRequest.logIn(user, session, origin, token, refreshToken, holds: true)
        try await reply(to: request).value.expectingOK()
    }

    /// Lets nobody use it any more; says whether somebody else may have the connection.
    func end() -> Bool {
        state.withLockedValue { state in
            state.hasEnded = true
            return state.isReusable && state.underWay == 0
        }
    }
}
