import LinuxSupport

/// Address and credentials of the Redis server.
package struct RedisSettings: Equatable, Sendable {
    /// Ignored if ``sentinels`` is not empty.
    package var address = RedisAddress.tcp(host: "127.0.0.1", port: 6_379)
    /// Sentinels, queried in order until one names a reachable master.
    package var sentinels: [RedisAddress] = []
    /// The master's name in Sentinel.
    package var master = "mymaster"
    /// The ACL user; empty for `default`.
    package var user = ""
    package var password: Secret?
    /// The ACL user of the sentinels.
    package var sentinelUser = ""
    package var sentinelPassword: Secret?
    package var tls = TLS()
    /// Milliseconds to connect, and for each reply.
    package var timeout: Int64 = 5_000

    package init() {}

    package struct TLS: Equatable, Sendable {
        package var isOn: Bool
        /// PEM files. Empty: the system's authorities, and no client certificate.
        package var authorities: String
        package var certificate: String
        package var key: String

        package init(isOn: Bool = false, authorities: String = "", certificate: String = "", key: String = "") {
            (self.isOn, self.authorities, self.certificate, self.key) = (isOn, authorities, certificate, key)
        }
    }
}
