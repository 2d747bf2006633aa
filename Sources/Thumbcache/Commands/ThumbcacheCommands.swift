/// The commands of thumbcached. A ``ThumbcacheClient`` chooses a connection for each request; a
/// ``ThumbcacheConnection`` executes requests in order.
public protocol ThumbcacheCommands: Sendable {
    /// Sends a request and waits for its reply. The methods for each command do this.
    /// - Throws: an error reply of the daemon as ``ThumbcacheError/server(_:message:)``.
    func reply(to request: ThumbcacheRequest) async throws(ThumbcacheError) -> ThumbcacheReply
}
