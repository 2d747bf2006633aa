import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// The relay's connection to Redis: TLS, accounts with passwords, and Sentinel.
    struct RelayConnectionTests {
        private static let rules =
            "on >secret ~thumbcached:fleet* +@stream +@hash +get +set +watch +multi +exec +time +hello +role +wait"

        @Test func `a relay connects over TLS, and reports an invalid certificate or password`() throws {
            try withMachine { machine in
                let files = try makeCertificates(machine)
                let port = try freePort()
                let options = [
                    "--tls-port", "\(port)", "--tls-cert-file", files.certificate, "--tls-key-file", files.key,
                    "--tls-ca-cert-file", files.authority, "--tls-auth-clients", "no", "--user", "relay",
                ]
                let redis = try RedisServer(
                    machine, "redis", options + Self.rules.split(separator: " ").map(String.init))
                let client = try redis.connect()
                try write("secret\n", to: machine.path("password"))
                let host = try FleetHost(machine, "host", redis) {
                    $0.settings["redis", "address"] = "localhost:\(Int(port))"
                    $0.settings["redis", "tls"] = true
                    $0.settings["redis", "authorities"] = .string(files.authority)
                    $0.settings["redis", "user"] = "relay"
                    $0.settings["redis", "password-file"] = .string(machine.path("password"))
                }
                try host.waitUntilAtEnd(client)
                try host.logIn("alice")
                try machine.runSuccessfully(
                    [
                        FleetHost.program, "logout", "alice", "--wait", "60", "--live", "1", "--config",
                        host.configuration,
                    ])
                #expect(try host.users() == [])

                func failure(_ adjust: (inout Settings) -> Void) throws -> String {
                    var settings = host.settings
                    adjust(&settings)
                    try write(settings.toml, to: machine.path("other.toml"))
                    let finished = try machine.run([
                        FleetHost.program, "status", "--config", machine.path("other.toml"),
                    ])
                    #expect(finished.status == 3, "\(finished.summary)")
                    return finished.errors
                }
                // The certificate is not valid for this address.
                let otherName = try failure { $0["redis", "address"] = "127.0.0.1:\(Int(port))" }
                #expect(otherName.contains("cannot connect to 127.0.0.1"), "\(otherName)")
                let untrusted = try failure { $0["redis", "authorities"] = nil }
                #expect(untrusted.contains("CERTIFICATE_VERIFY_FAILED"), "\(untrusted)")
                try write("wrong", to: machine.path("password"))
                let password = try failure { _ in }
                #expect(password.contains("WRONGPASS"), "\(password)")
            }
        }

        @Test func `I4: logouts continue after a Sentinel failover`() throws {
            try withMachine { machine in
                let ports = try (freePort(), freePort(), freePort())
                let master = try RedisServer(machine, "master", ["--port", "\(ports.0)", "--bind", "127.0.0.1"])
                let replica = try RedisServer(
                    machine, "replica",
                    ["--port", "\(ports.1)", "--bind", "127.0.0.1", "--replicaof", "127.0.0.1 \(ports.0)"])
                let place = try machine.makeDirectory("sentinel")
                try write(
                    """
                    port \(ports.2)
                    bind 127.0.0.1
                    dir \(place)
                    sentinel monitor fleet 127.0.0.1 \(ports.0) 1
                    sentinel down-after-milliseconds fleet 500
                    sentinel failover-timeout fleet 5000

                    """, to: "\(place)/sentinel.conf")
                _ = try machine.start(
                    ["redis-server", "\(place)/sentinel.conf", "--sentinel"],
                    output: .file(machine.path("sentinel.log")))
                let client = try master.connect()
                try eventually("the replica is connected") {
                    guard case .array(let role) = try client.call("ROLE"), role.count == 3,
                        case .array(let replicas) = role[2]
                    else { return false }
                    return !replicas.isEmpty
                }
                let host = try FleetHost(machine, "host", master) {
                    $0.settings["redis", "address"] = nil
                    // The first Sentinel is unreachable.
                    $0.settings["redis", "sentinels"] = ["127.0.0.1:1", "127.0.0.1:\(Int(ports.2))"]
                    $0.settings["redis", "master"] = "fleet"
                    $0.settings["redis", "timeout"] = "1s"
                }
                try host.waitUntilAtEnd(client)
                try host.logIn("alice", "bob", "carol")
                let fleet = { (user: String) in
                    try machine.run(
                        [
                            FleetHost.program, "logout", user, "--wait", "60", "--live", "1", "--config",
                            host.configuration,
                        ])
                }
                // Succeeds only after the replica has received the entry.
                let done = try fleet("alice")
                #expect(done.status == 0, "\(done.summary)")
                try eventually("the sentinel knows the replica") {
                    try readText(machine.path("sentinel.log")).contains("+slave ")
                }
                master.kill()
                try eventually("the replica is master") { try fleet("bob").status == 0 }
                #expect(try host.users() == ["carol"])
                try host.waitUntilAtEnd(try replica.connect())
                // No entry was lost, and no other user was logged out.
                #expect(!host.log.contains("the stream ends before the position"))
            }
        }
    }
}
