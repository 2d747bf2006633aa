/// How much one request may ask a server to hold. All of it is checked against what a request declares, before anything
/// is set aside for it.
public struct RequestLimits: Sendable, Equatable {
    /// Bulk strings in one request, the command's name included.
    public var arguments: Int
    /// Bytes of the longest bulk string.
    public var argumentBytes: Int
    /// Bytes of all bulk strings of one request together, without the lines that declare them.
    public var frameBytes: Int

    public init(arguments: Int = 1024, argumentBytes: Int = 16 << 20, frameBytes: Int = 16 << 20) {
        self.arguments = arguments
        self.argumentBytes = argumentBytes
        self.frameBytes = frameBytes
    }

    /// The same limits within what a ``NIOCore/ByteBuffer`` can hold.
    var clamped: RequestLimits {
        RequestLimits(
            arguments: min(max(arguments, 1), 1 << 20),
            argumentBytes: min(max(argumentBytes, 0), 1 << 30),
            frameBytes: min(max(frameBytes, 0), 1 << 30))
    }
}

/// Bytes that are no message of the protocol, or one beyond the limits. The connection they came on cannot be read
/// further: where the next message begins is unknown.
public struct ProtocolError: Error, Equatable, Sendable {
    /// What was found and what would be right, in printable ASCII. It follows `-ERR Protocol error: ` on the wire.
    public let message: String
    /// The bytes are well-formed, but a declared length is over its limit.
    public let isTooLarge: Bool

    public init(_ message: String, isTooLarge: Bool = false) {
        self.message = message
        self.isTooLarge = isTooLarge
    }
}
