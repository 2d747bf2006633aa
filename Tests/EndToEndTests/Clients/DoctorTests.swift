import Foundation
import Testing

extension EndToEnd {
    /// `thumbcachectl doctor` and a real daemon.
    struct DoctorTests {
        private func doctor(
            _ machine: Machine, _ daemon: Daemon, _ arguments: [String] = [], configuration: String? = nil
        ) throws -> Finished {
            try machine.run(
                [
                    "\(Files.programs)/thumbcachectl", "--socket", daemon.socket, "doctor", "--config",
                    configuration ?? daemon.configuration,
                ] + arguments, environment: ["NO_COLOR": "1"])
        }

        @Test func `all is well with a daemon and an origin that answer`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { Picture.gif($0.path) }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let seen = try doctor(machine, daemon)
                #expect(seen.status == 0, "\(seen.everything)")
                #expect(!seen.text.contains("wrong") && !seen.text.contains("unknown"))
                #expect(seen.text.contains("ok       origins        default answers"))
                #expect(origin.requests.map(\.path) == ["/thumbcachectl-doctor"])
                // The user that asked has gone with the connection.
                let client = try daemon.connect()
                #expect(try client.call("USERS") == .array([]))
                try daemon.stop()
            }
        }

        @Test func `each thing that is wrong is a line with what to do, and the status says so`() throws {
            try withMachine { machine in
                let secret = machine.path("secret")
                try write("s", to: secret)
                chmod(secret, 0o644)
                let daemon = try machine.daemon { $0.settings.setOrigin("http://127.0.0.1:1/{profile}") }
                let configuration = try String(decoding: read(daemon.configuration), as: UTF8.self)
                let broken = machine.path("broken.toml")
                let more = "\n[origins.more]\nurl = 5\ntoken.client-secret-file = \"\(secret)\"\n"
                try write(configuration + more, to: broken)
                chmod(daemon.cache, 0o777)
                let seen = try doctor(machine, daemon, configuration: broken)
                #expect(seen.status == 1, "\(seen.everything)")
                for line in [
                    "wrong    configuration  \(broken): origins.more.url",
                    "wrong    permissions    \(daemon.cache) has mode",
                    "-> chmod 0755 \(daemon.cache)", "wrong    credentials    \(secret) has mode 0644",
                    "wrong    origins        default: ORIGIN",
                ] {
                    #expect(seen.text.contains(line), "\(line)\n\(seen.everything)")
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
