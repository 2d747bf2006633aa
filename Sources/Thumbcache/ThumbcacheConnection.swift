import NIOConcurrencyHelpers
import RESP

/// One connection, lent to the body of ``ThumbcacheClient/withConnection(_:)``. Commands are done in the order in which
/// they are sent; a later one sees what an earlier LOGIN, LOGOUT, PURGE or PUT did.
public final class ThumbcacheConnection: ThumbcacheCommands {
    private struct State {
        var hasEnded = false
        var isReusable = true
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
        guard state.withLockedValue({ !$0.hasEnded }) else {
            throw .invalidRequest("the connection was lent for the time of withConnection, which is over")
        }
        return try await client.counted { () async throws(ThumbcacheError) in
            try await within(request.timeout ?? self.client.configuration.requestTimeout) {
                () async throws(ThumbcacheError) in
                try await self.connection.reply(to: request.words, closing: true)
            }
        } changing: {
            request.change
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
            return state.isReusable
        }
    }
}
