import NIOCore
import ThumbcacheProtocol

extension ThumbcacheCommands {
    /// Asks whether the daemon answers.
    public func ping() async throws(ThumbcacheError) {
        guard try await reply(to: ThumbcacheRequest("PING")).value.text == "PONG" else {
            throw .protocolViolation("PING was not answered by PONG")
        }
    }

    /// Figures of the daemon, as `key:value` lines in sections. Those of other uids only for admins and observers.
    /// - Parameter sections: these; all without any.
    public func info(_ sections: [String] = []) async throws(ThumbcacheError) -> String {
        let request = ThumbcacheRequest(words("INFO") + sections.map(ByteBuffer.init(string:)))
        return try await reply(to: request).value.expectingText()
    }

    /// The same in Prometheus's text format. For admins and observers (`access.observers`).
    public func metrics() async throws(ThumbcacheError) -> String {
        try await reply(to: ThumbcacheRequest("METRICS")).value.expectingText()
    }
}
