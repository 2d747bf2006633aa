import LinuxSupport

/// How the server with the stream is reached.
package struct RedisSettings: Equatable, Sendable {
    /// Not used where there are ``sentinels``.
    package var address = RedisAddress.tcp(host: "127.0.0.1", port: 6_379)
    /// Those who know where the master is; each is asked until one says.
    package var sentinels: [RedisAddress] = []
    /// The name by which the sentinels know it.
    package var master = "mymaster"
    /// Of the ACL; empty for the default one.
    package var user = ""
    package var password: Secret?
    /// The same for sentinels, which have users of their own.
    package var sentinelUser = ""
    package var sentinelPassword: Secret?
    package var tls = TLS()
    /// Milliseconds that a server may take to take a connection, and to answer.
    package var timeout: Int64 = 5_000

    package init() {}

    package struct TLS: Equatable, Sendable {
        package var isOn: Bool
        /// Files in PEM; empty for the system's authorities, and for no certificate of one's own.
        package var authorities: String
        package var certificate: String
        package var key: String

        package init(isOn: Bool = false, authorities: String = "", certificate: String = "", key: String = "") {
            (self.isOn, self.authorities, self.certificate, self.key) = (isOn, authorities, certificate, key)
        }
    }
}
