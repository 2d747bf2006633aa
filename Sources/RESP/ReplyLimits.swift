/// How much one reply may ask a client to hold.
public struct ReplyLimits: Sendable, Equatable {
    /// Arrays, maps and sets inside one another; 1 permits an array of plain values.
    public var depth: Int
    /// Values in one reply, all levels together.
    public var values: Int
    /// Bytes of the longest bulk or verbatim string.
    public var bulkBytes: Int
    /// Bytes of a simple string, an error or a number, marker and CRLF included.
    public var lineBytes: Int
    /// Bytes of a whole reply.
    public var replyBytes: Int

    public init(
        depth: Int = 16, values: Int = 1 << 20, bulkBytes: Int = 64 << 20, lineBytes: Int = 64 << 10,
        replyBytes: Int = 1 << 30
    ) {
        self.depth = depth
        self.values = values
        self.bulkBytes = min(bulkBytes, 1 << 30)
        self.lineBytes = lineBytes
        self.replyBytes = replyBytes
    }
}
