import ThumbnailCache

/// How the server with the stream is reached.
struct RedisSettings: Equatable, Sendable {
    /// Not used where there are ``sentinels``.
    var address = RedisAddress.tcp(host: "127.0.0.1", port: 6_379)
    /// Those who know where the master is; each is asked until one says.
    var sentinels: [RedisAddress] = []
    /// The name by which the sentinels know it.
    var master = "mymaster"
    /// Of the ACL; empty for the default one.
    var user = ""
    var password: Secret?
    /// The same for sentinels, which have users of their own.
    var sentinelUser = ""
    var sentinelPassword: Secret?
    var tls = TLS()
    /// Milliseconds that a server may take to take a connection, and to answer.
    var timeout: Int64 = 5_000

    struct TLS: Equatable, Sendable {
        var isOn = false
        /// Files in PEM; empty for the system's authorities, and for no certificate of one's own.
        var authorities = ""
        var certificate = ""
        var key = ""
    }
}
