/// What a peer may have of us.
struct HTTPLimits: Equatable, Sendable {
    /// At once; further ones wait in the kernel.
    var connections = 64
    /// Bytes.
    var body = 64 << 10
    /// Milliseconds from when a connection is made, or TLS begins, until its request is there as a whole.
    var requestTime: Int64 = 10_000
    /// Milliseconds that a peer may take to close, once it has its answer.
    var closeTime: Int64 = 2_000
    /// Refused requests of one address in a minute; 0 for any number.
    var refusals = 60

    /// Bytes of all fields, and how many.
    static let head = 16 << 10
    static let fields = 100
}
