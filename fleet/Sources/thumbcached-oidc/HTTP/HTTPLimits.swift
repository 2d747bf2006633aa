/// Limits of the HTTP server.
struct HTTPLimits: Equatable, Sendable {
    /// Open connections: see ``ConnectionTable``.
    var connections = 128
    /// In bytes.
    var body = 64 << 10
    /// Milliseconds from accepting a connection, including TLS, to its complete request.
    var requestTime: Int64 = 10_000
    /// Milliseconds for the peer to close after the response.
    var closeTime: Int64 = 2_000
    /// Rejected requests of one peer in a minute that are explained and logged; 0 for no limit.
    var refusals = 60

    /// Bytes of all header fields, and their number.
    static let head = 16 << 10
    static let fields = 100
}
