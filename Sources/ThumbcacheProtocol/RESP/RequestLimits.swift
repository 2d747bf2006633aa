/// Configurable limits of one request. Lengths are checked as a request declares them, before memory is reserved.
public struct RequestLimits: Sendable, Equatable {
    /// Arguments of one request, including the command's name.
    public var arguments: Int
    /// Bytes of all arguments together, without the lines that declare their lengths.
    public var payloadBytes: Int
    /// Bytes of a user, profile or session id.
    public var id: Int
    /// Bytes of an image of PUT.
    public var image: Int
    /// Bytes of a token of LOGIN.
    public var token: Int
    /// Bytes of one argument of any command; nil for the maximum that a command accepts.
    public var argument: Int?

    public init(
        arguments: Int = 1024, payloadBytes: Int = 16 << 20, id: Int = 512, image: Int = 5 << 20, token: Int = 8 << 10,
        argument: Int? = nil
    ) {
        self.arguments = arguments
        self.payloadBytes = payloadBytes
        self.id = id
        self.image = image
        self.token = token
        self.argument = argument
    }

    var argumentBytes: Int { argument ?? max(image, token, id, CommandLimits.url) }

    /// The same limits, reduced to what a ``NIOCore/ByteBuffer`` can hold.
    var clamped: RequestLimits {
        var limits = self
        limits.arguments = min(max(arguments, 1), 1 << 20)
        limits.payloadBytes = min(max(payloadBytes, 0), 1 << 30)
        limits.argument = min(max(argumentBytes, 0), 1 << 30)
        return limits
    }
}

/// Bytes that are not a valid request, or one beyond the limits. The connection must be closed, since the beginning of
/// the next request is unknown.
public struct ProtocolError: Error, Equatable, Sendable {
    /// The problem and what would be valid, in printable ASCII. Follows `-ERR Protocol error: ` on the wire.
    public let message: String
    /// The request is well-formed, but a declared length is over its limit.
    public let isTooLarge: Bool

    public init(_ message: String, isTooLarge: Bool = false) {
        self.message = message
        self.isTooLarge = isTooLarge
    }
}
