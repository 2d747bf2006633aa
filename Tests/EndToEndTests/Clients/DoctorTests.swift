import Foundation
import Testing

extension EndToEnd.Clients {
    /// `thumbcachectl doctor` with a running daemon.
    struct DoctorTests {
        private func doctor(
            _ machine: Machine, _ daemon: Daemon, _ arguments: [String] = [], configuration: String? = nil
        ) throws -> Finished {
            try machine.run(
                [
                    "\(Files.programs)/thumbcachectl", "--socket", daemon.socket, "doctor", "--config",
                    configuration ?? daemon.configuration, "--http-config", machine.path("http.toml"),
                ] + arguments, environment: ["NO_COLOR": "1"])
        }

        @Test func `a daemon and an origin that respond have no problem`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { TestImage.gif($0.path) }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let seen = try doctor(machine, daemon)
                #expect(seen.status == 0, "\(seen.summary)")
                #expect(!seen.text.contains("wrong") && !seen.text.contains("unknown"))
                #expect(seen.text.contains("ok       origins        default responds"))
                #expect(origin.requests.map(\.path) == ["/thumbcachectl-doctor"])
                // The user that doctor logs in is logged out again.
                let client = try daemon.connect()
                #expect(try client.call("USERS") == .array([]))
            }
        }

        @Test func `thumbcached-http is checked if it is configured`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let (file, key, socket) = (machine.path("http.toml"), machine.path("key"), machine.path("s"))
                func http() throws -> [String] {
                    try doctor(machine, daemon).text.split(separator: "\n")
                        .filter { $0.contains(" http           ") }.map(String.init)
                }
                #expect(try http() == ["ok       http           not used: \(file) does not exist"])

                try write(String(repeating: "k", count: 32), to: key)
                chmod(key, 0o600)
                let port = try freePort()
                let settings = """
                    [figures]
                    listen = "127.0.0.1:\(port)"
                    [images]
                    listen = "\(socket)"
                    per-user = "signed"
                    signing-key = "\(key)"

                    """
                try write(settings, to: file)
                let service = try HTTPService(machine, settings, arguments: ["--socket", daemon.socket]) {
                    try getHTTP(port, "/").status == 200 && Files.exists(socket)
                }
                #expect(
                    try http() == [
                        "ok       http           \(file) is valid",
                        "ok       http           figures.listen: 127.0.0.1:\(port) responds",
                        "ok       http           images.listen: \(socket) responds",
                        "ok       http           \(key) has the expected type, owner and mode",
                    ])

                chmod(key, 0o644)
                service.process.end()
                try write(settings + "size-limit = 0\n", to: file)
                let broken = try http()
                #expect(broken.allSatisfy { $0.hasPrefix("wrong ") })
                for text in [
                    "images.size-limit", "figures.listen: 127.0.0.1:\(port): Connection refused",
                    "images.listen: \(socket): Connection refused", "\(key) has mode 0644; it should be 0600",
                ] {
                    #expect(broken.contains { $0.contains(text) }, "\(text) is missing in \(broken)")
                }
            }
        }

        @Test func `each problem is a line with a remedy, and determines the status`() throws {
            try withMachine { machine in
                let secret = machine.path("secret")
                try write("s", to: secret)
                chmod(secret, 0o644)
                let daemon = try machine.daemon { $0.settings.setOrigin("http://127.0.0.1:1/{profile}") }
                let configuration = try readText(daemon.configuration)
                let broken = machine.path("broken.toml")
                let more = "\n[origins.more]\nurl = 5\ntoken.client-secret-file = \"\(secret)\"\n"
                try write(configuration + more, to: broken)
                chmod(daemon.cache, 0o777)
                let seen = try doctor(machine, daemon, configuration: broken)
                #expect(seen.status == 1, "\(seen.summary)")
                for line in [
                    "wrong    configuration  \(broken): origins.more.url",
                    "wrong    permissions    \(daemon.cache) has mode",
                    "-> chmod 0755 \(daemon.cache)", "wrong    credentials    \(secret) has mode 0644",
                    "wrong    origins        default: ORIGIN",
                ] {
                    #expect(seen.text.contains(line), "\(line)\n\(seen.summary)")
                }
                let json = try doctor(machine, daemon, ["--json"], configuration: broken)
                let diagnostics = try JSONSerialization.jsonObject(with: Data(json.output)) as? [[String: Any]]
                #expect(json.status == 1 && diagnostics?.contains { $0["verdict"] as? String == "wrong" } == true)
                try daemon.stop()
                let without = try doctor(machine, daemon)
                #expect(without.status == 1 && without.text.contains("wrong    socket         no daemon at"))
                #expect(without.text.contains("unknown  origins"))
            }
        }
    }
}
