/// Who can be asked: a ``ThumbcacheClient``, which finds a connection for each request, or a ``ThumbcacheConnection``,
/// on which they are done in order.
public protocol ThumbcacheCommands: Sendable {
    /// Sends a request and waits for its reply. The methods for each command do this.
    /// - Throws: also the daemon's own error, as ``ThumbcacheError/server(_:message:)``.
    func reply(to request: ThumbcacheRequest) async throws(ThumbcacheError) -> ThumbcacheReply
}
