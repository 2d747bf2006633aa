import Foundation
import Testing

extension EndToEnd {
    /// An origin that fails, beside one that does not.
    struct FailingOriginTests {
        /// A daemon with an origin `broken` that is not asked for hours after so many failures, and an origin `fine`.
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

        private func nginx(_ machine: Machine, _ pictures: Int) throws -> Nginx {
            let directory = try machine.makeDirectory("pictures")
            for number in 0..<pictures { try write(Picture.gif("\(number)"), to: "\(directory)/\(number).gif") }
            return try Nginx(machine, serving: directory)
        }

        /// What INFO's section `fetch` says of an origin.
        private func figures(_ daemon: Daemon, _ origin: String) throws -> [String: Int] {
            let line = try daemon.info("origin_\(origin)") ?? ""
            return Dictionary(
                uniqueKeysWithValues: line.split(separator: ",").compactMap { figure in
                    let parts = figure.split(separator: "=")
                    return parts.count == 2 ? Int(parts[1]).map { (String(parts[0]), $0) } : nil
                })
        }

        @Test(arguments: [
            ("500 Broken", "X-Other: 1", 5), ("503 Overloaded", "Retry-After: 3600", 1),
            ("429 Slow", "Retry-After: 3600", 1),
        ])
        func `F37: a failing origin is asked as often as it may be, and another gives every image meanwhile`(
            status: String, header: String, asked: Int
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
                    #expect(try client.call("GET", "bob", "\(number)") == .bulk(Picture.gif("\(number)")))
                }
                #expect(last.brief.contains("is not asked for"), "\(last.brief)")
                #expect(broken.requests.count == asked)
                #expect(try fine.requests().count == 200)

                let failed = try figures(daemon, "broken")
                #expect(failed["requests"] == asked && failed["failures"] == 200 && failed["rejected"] == 200 - asked)
                #expect(failed["retry_in_ms", default: 0] > 0)
                let worked = try figures(daemon, "fine")
                #expect(worked["requests"] == 200 && worked["failures"] == 0 && worked["retry_in_ms"] == 0)
                #expect(worked["bytes", default: 0] > 0)
                #expect(try daemon.info("uids_open") == "1" && daemon.info("hosts_open") == "0")
                #expect(try daemon.info("failed_origin") == "200" && daemon.info("answers_2xx") == "200")
            }
        }

        @Test func `F36, F37: an origin that hangs frees its places, and another gives every image meanwhile`() throws {
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
                    #expect(try bob.call("GET", "bob", "\(number)") == .bulk(Picture.gif("\(number)")))
                }
                for _ in 0..<60 {
                    let reply = try alice.receive()
                    #expect(reply.code == "TIMEOUT" || reply.code == "ORIGIN", "\(reply.brief)")
                }
                // On a busy machine, a download's time may be up before it begins: then it says nothing of the origin.
                var refused = try alice.call("GET", "alice", "once more")
                var hung = 0
                while refused.code == "TIMEOUT", hung < 30 {
                    hung += 1
                    refused = try alice.call("GET", "alice", "once more")
                }
                #expect(refused.code == "ORIGIN" && refused.brief.contains("is not asked for"), "\(refused.brief)")
                // Four at once, and some more before the third of them is known to have failed: how many, the machine's
                // haste decides. Without the breaker there would be one for each download.
                #expect(hanging.requests.count < 60)
                // A client's time may be up a moment before that of its download.
                try eventually("no place is taken any more") {
                    try daemon.info("in_flight") == "0" && daemon.info("queued") == "0"
                }
            }
        }

        @Test func `F36, F37: what is held is served, stale, for as long as its origin is not asked`() throws {
            try withMachine { machine in
                let picture = Picture.gif("bob")
                let origin = try GatedOrigin { request in
                    request.number == 1
                        ? [.send(GatedOrigin.response(picture, headers: ["Cache-Control: max-age=0"]))]
                        : [.send(GatedOrigin.response([], status: "500 Broken"))]
                }
                defer { origin.end() }
                let fine = try nginx(machine, 1)
                let daemon = try daemon(machine, broken: origin, fine: fine, failures: 3)
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "ORIGIN", "broken") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(picture))
                for _ in 0..<100 {
                    let stale = try client.call("GET", "alice", "bob", "META")
                    #expect(stale["image"] == .bulk(picture) && stale["state"]?.text == "stale", "\(stale.brief)")
                    // Something else that fails, so that the origin is known to fail however the background goes on.
                    #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                }
                #expect((2...8).contains(origin.requests.count), "\(origin.requests.count)")
            }
        }
    }
}
