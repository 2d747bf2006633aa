/// What a peer may have of us.
struct HTTPLimits: Equatable, Sendable {
    /// Open at once, silent or not: see ``ConnectionTable``.
    var connections = 128
    /// Bytes.
    var body = 64 << 10
    /// Milliseconds from when a connection is made, or TLS begins, until its request is there as a whole.
    var requestTime: Int64 = 10_000
    /// Milliseconds that a peer may take to close, once it has its answer.
    var closeTime: Int64 = 2_000
    /// Rejected requests of one peer in a minute that are explained and logged; 0 for any number.
    var refusals = 60

    /// Bytes of all fields, and how many.
    static let head = 16 << 10
    static let fields = 100
}
