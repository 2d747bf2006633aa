import Foundation
import Testing

extension EndToEnd.Origins {
    /// A failing origin beside a working one.
    struct FailingOriginTests {
        /// A daemon with two origins. `broken` is suspended for hours after `failures` failures.
        private func daemon(
            _ machine: Machine, broken: GatedOrigin, fine: Nginx, failures: Int, more: [String: Settings.Value] = [:]
        ) throws -> Daemon {
            try machine.daemon { daemon in
                daemon.settings.setOrigin("\(broken.url)/{profile}", name: "broken")
                daemon.settings.setOrigin("\(fine.url)/{profile}", name: "fine")
                daemon.settings["origins.broken", "failures"] = .integer(failures)
                daemon.settings["origins.broken", "backoff"] = "6h"
                daemon.settings["origins.broken", "backoff-max"] = "1d"
                for (key, value) in more { daemon.settings["origins.broken", key] = value }
            }
        }

        private func nginx(_ machine: Machine, _ images: Int) throws -> Nginx {
            let directory = try machine.makeDirectory("images")
            for number in 0..<images { try write(TestImage.gif("\(number)"), to: "\(directory)/\(number).gif") }
            return try Nginx(machine, serving: directory)
        }

        /// The counters of an origin in INFO's section `fetch`.
        private func counters(_ daemon: Daemon, _ origin: String) throws -> [String: Int] {
            let line = try daemon.info("origin_\(origin)") ?? ""
            return Dictionary(
                uniqueKeysWithValues: line.split(separator: ",").compactMap { counter in
                    let parts = counter.split(separator: "=")
                    return parts.count == 2 ? Int(parts[1]).map { (String(parts[0]), $0) } : nil
                })
        }

        @Test(arguments: [
            ("500 Broken", "X-Other: 1", 5), ("503 Overloaded", "Retry-After: 3600", 1),
            ("429 Slow", "Retry-After: 3600", 1),
        ])
        func `F37: requests to a failing origin are limited, and another origin is not affected`(
            status: String, header: String, requests: Int
        ) throws {
            try withMachine { machine in
                let broken = try GatedOrigin { _ in [.send(GatedOrigin.response([], status: status, headers: [header]))]
                }
                defer { broken.end() }
                let fine = try nginx(machine, 200)
                let daemon = try daemon(
                    machine, broken: broken, fine: fine, failures: 5, more: ["retry-after-max": "1d"])
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "ORIGIN", "broken") == .ok)
                #expect(try client.call("LOGIN", "bob", "ORIGIN", "fine") == .ok)
                var last = Reply.null
                for number in 0..<200 {
                    last = try client.call("GET", "alice", "\(number)")
                    #expect(last.code == "ORIGIN", "\(last.brief)")
                    #expect(try client.call("GET", "bob", "\(number)") == .bulk(TestImage.gif("\(number)")))
                }
                #expect(last.brief.contains("are suspended for"), "\(last.brief)")
                #expect(broken.requests.count == requests)
                #expect(try fine.requests().count == 200)

                let failed = try counters(daemon, "broken")
                #expect(failed["requests"] == requests && failed["downloads_failed"] == 200)
                #expect(failed["downloads_rejected"] == 200 - requests)
                #expect(failed["retry_in_ms", default: 0] > 0)
                let worked = try counters(daemon, "fine")
                #expect(worked["requests"] == 200 && worked["downloads_failed"] == 0 && worked["retry_in_ms"] == 0)
                #expect(worked["received_bytes", default: 0] > 0)
                #expect(try daemon.info("breakers_open_account") == "1" && daemon.info("breakers_open_host") == "0")
                #expect(try daemon.info("origins_downloads_failed") == "200")
                #expect(try daemon.info("origins_responses_2xx") == "200")
            }
        }

        @Test func `F36, F37: downloads from a hanging origin time out, and another origin is not affected`() throws {
            try withMachine { machine in
                let hanging = try GatedOrigin { _ in [.silence] }
                defer { hanging.end() }
                let fine = try nginx(machine, 100)
                let daemon = try daemon(
                    machine, broken: hanging, fine: fine, failures: 3,
                    more: ["connections": 4, "timeout": "1s", "connect-timeout": "10ms"])
                let (alice, bob) = (try daemon.connect(), try daemon.connect())
                #expect(try alice.call("LOGIN", "alice", "ORIGIN", "broken") == .ok)
                #expect(try bob.call("LOGIN", "bob", "ORIGIN", "fine") == .ok)
                for number in 0..<60 { try alice.send("GET", "alice", "\(number)") }
                for number in 0..<100 {
                    #expect(try bob.call("GET", "bob", "\(number)") == .bulk(TestImage.gif("\(number)")))
                }
                for _ in 0..<60 {
                    let reply = try alice.receive()
                    #expect(reply.code == "TIMEOUT" || reply.code == "ORIGIN", "\(reply.brief)")
                }
                // On a busy machine a download may time out before it starts, which does not count as a failure.
                var rejected = try alice.call("GET", "alice", "once more")
                var hung = 0
                while rejected.code == "TIMEOUT", hung < 30 {
                    hung += 1
                    rejected = try alice.call("GET", "alice", "once more")
                }
                #expect(rejected.code == "ORIGIN" && rejected.brief.contains("are suspended for"), "\(rejected.brief)")
                // At least 4, and more until the third failure is known. Without the breaker, there would be 60.
                #expect(hanging.requests.count < 60)
                // A request may time out shortly before its download.
                try eventually("no download is in flight") {
                    try daemon.info("downloads_in_flight") == "0" && daemon.info("downloads_queued") == "0"
                }
            }
        }

        @Test func `F36, F37: stale images are served while their origin is suspended`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob")
                let origin = try GatedOrigin { request in
                    request.number == 1
                        ? [.send(GatedOrigin.response(image, headers: ["Cache-Control: max-age=0"]))]
                        : [.send(GatedOrigin.response([], status: "500 Broken"))]
                }
                defer { origin.end() }
                let fine = try nginx(machine, 1)
                let daemon = try daemon(machine, broken: origin, fine: fine, failures: 3)
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "ORIGIN", "broken") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(image))
                for _ in 0..<100 {
                    let stale = try client.call("GET", "alice", "bob", "META")
                    #expect(stale["image"] == .bulk(image) && stale["state"]?.text == "stale", "\(stale.brief)")
                    // Counts as a failure independently of the revalidation in the background.
                    #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                }
                #expect((2...8).contains(origin.requests.count), "\(origin.requests.count)")
            }
        }
    }
}
