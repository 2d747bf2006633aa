import NIOCore
import ThumbcacheProtocol

extension ThumbcacheCommands {
    /// Checks that the daemon responds.
    public func ping() async throws(ThumbcacheError) {
        guard try await reply(to: ThumbcacheRequest("PING")).value.text == "PONG" else {
            throw .protocolViolation("the reply to PING is not PONG")
        }
    }

    /// Returns the daemon's statistics as `key:value` lines in sections. Only admins and observers get statistics of
    /// other uids.
    /// - Parameter sections: the sections to return; all if empty.
    public func info(_ sections: [String] = []) async throws(ThumbcacheError) -> String {
        let request = ThumbcacheRequest(words("INFO") + sections.map(ByteBuffer.init(string:)))
        return try await reply(to: request).value.expectingText()
    }

    /// Returns the daemon's metrics in Prometheus's text format. Admins and observers (`access.observers`) only.
    public func metrics() async throws(ThumbcacheError) -> String {
        try await reply(to: ThumbcacheRequest("METRICS")).value.expectingText()
    }
}
