import Foundation
import Testing

extension EndToEnd.Origins {
    /// An origin with several upstreams.
    struct ChainTests {
        /// An nginx with a directory of images.
        private struct Upstream {
            let images: String
            let nginx: Nginx

            init(_ machine: Machine, _ name: String, logging: String = "$uri $status", directives: String = "") throws {
                images = try machine.makeDirectory(name)
                nginx = try Nginx(machine, serving: images, directives: directives, logging: logging)
            }

            func add(_ profile: String, _ image: [UInt8]) throws {
                try write(image, to: "\(images)/\(profile).gif")
            }
            func remove(_ profile: String) throws {
                try FileManager.default.removeItem(atPath: "\(images)/\(profile).gif")
            }

            /// The number of requests beyond `seen`, which is updated.
            func newRequests(_ seen: inout Int) throws -> Int {
                let count = try nginx.requests().count
                defer { seen = count }
                return count - seen
            }
        }

        private func daemon(_ machine: Machine, _ urls: [String], more: (Daemon) -> Void = { _ in }) throws -> Daemon {
            try machine.daemon { daemon in
                daemon.settings.setOrigin("\(urls[0])/{profile}")
                daemon.settings["origins.default", "then"] = .array(
                    urls.dropFirst().map {
                        .table(["url": .string("\($0)/{profile}"), "allow-private-addresses": true])
                    })
                more(daemon)
            }
        }

        @Test func `the first upstream with an image is used, and missing images are remembered per upstream`() throws {
            try withMachine { machine in
                let upstreams = try ["a", "b", "c"].map { try Upstream(machine, $0) }
                var seen = [0, 0, 0]
                func newRequests() throws -> [Int] {
                    try upstreams.indices.map { try upstreams[$0].newRequests(&seen[$0]) }
                }
                let daemon = try daemon(machine, upstreams.map(\.nginx.url))
                let client = try daemon.connect(loggedInAs: "alice")
                try upstreams[1].add("bob", TestImage.gif("second"))
                try upstreams[2].add("bob", TestImage.gif("third"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("second")))
                #expect(try newRequests() == [1, 1, 0])
                #expect(try client.call("GET", "alice", "eve") == .null)
                #expect(try newRequests() == [1, 1, 1])
                #expect(try client.call("GET", "alice", "eve") == .null)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("second")))
                #expect(try newRequests() == [0, 0, 0])
            }
        }

        @Test func `I6: 500 GETs of an image of the last upstream cause one request to each`() throws {
            try withMachine { machine in
                let upstreams = try ["a", "b", "c"].map { try Upstream(machine, $0) }
                try upstreams[2].add("bob", TestImage.gif("third"))
                let daemon = try daemon(machine, upstreams.map(\.nginx.url))
                _ = try daemon.connect(loggedInAs: "alice")
                let clients = try (0..<100).map { _ in try daemon.connect() }
                for client in clients { try client.send(["GET", "alice", "bob"], count: 5) }
                for client in clients {
                    for _ in 0..<5 { #expect(try client.receive() == .bulk(TestImage.gif("third"))) }
                }
                #expect(try upstreams.map { try $0.nginx.requests().count } == [1, 1, 1])
            }
        }

        @Test func `an image is revalidated at its upstream, and requested from all if it was deleted`() throws {
            try withMachine { machine in
                let upstreams = try ["a", "b", "c"].map {
                    let header = "add_header Cache-Control 'max-age=0, must-revalidate' always;"
                    return try Upstream(machine, $0, directives: header)
                }
                let daemon = try daemon(machine, upstreams.map(\.nginx.url))
                let client = try daemon.connect(loggedInAs: "alice")
                try upstreams[1].add("bob", TestImage.gif("second"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("second")))
                let again = try client.call("GET", "alice", "bob", "META")
                #expect(again["source"]?.text == "revalidated" && again["image"] == .bulk(TestImage.gif("second")))
                try eventually("the image is on disk") { try client.call("STAT", "alice")["images"] == .integer(1) }
                try daemon.restart()
                let other = try daemon.connect()
                #expect(try other.call("GET", "alice", "bob", "META")["source"]?.text == "revalidated")
                try upstreams[1].remove("bob")
                try upstreams[2].add("bob", TestImage.gif("third"))
                #expect(try other.call("GET", "alice", "bob") == .bulk(TestImage.gif("third")))
                #expect(try upstreams[0].nginx.requests() == ["/bob 404", "/bob 404"])
                #expect(
                    try upstreams[1].nginx.requests() == ["/bob.gif 200", "/bob.gif 304", "/bob.gif 304", "/bob 404"])
                #expect(try upstreams[2].nginx.requests() == ["/bob.gif 200"])
            }
        }

        @Test func `F37: a failing upstream is skipped, and its circuit breaker limits its requests`() throws {
            try withMachine { machine in
                let broken = try GatedOrigin { _ in [.send(GatedOrigin.response([], status: "500 Broken"))] }
                defer { broken.end() }
                let working = try Upstream(machine, "b")
                for number in 0..<50 { try working.add("\(number)", TestImage.gif("\(number)")) }
                let daemon = try daemon(machine, [broken.url, working.nginx.url]) { daemon in
                    daemon.settings["origins.default", "failures"] = 3
                    daemon.settings["origins.default", "backoff"] = "6h"
                    daemon.settings["origins.default", "backoff-max"] = "1d"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                for number in 0..<50 {
                    #expect(try client.call("GET", "alice", "\(number)") == .bulk(TestImage.gif("\(number)")))
                }
                #expect(broken.requests.count == 3)
                #expect(try working.nginx.requests().count == 50)
                // An error and not null: the failing upstream may have an image.
                #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                #expect(try working.nginx.requests().count == 51)
                #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                #expect(try working.nginx.requests().count == 51)
                #expect(try daemon.info("origins_downloads_failed") == "52")
            }
        }

        @Test func `F36: a hanging upstream leaves time for the next one`() throws {
            try withMachine { machine in
                let hanging = try GatedOrigin { _ in [.silence] }
                defer { hanging.end() }
                let working = try Upstream(machine, "b")
                try working.add("bob", TestImage.gif("bob"))
                let daemon = try daemon(machine, [hanging.url, working.nginx.url]) { daemon in
                    daemon.settings["origins.default", "timeout"] = "3s"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob", "WAIT", "60000") == .bulk(TestImage.gif("bob")))
                #expect(hanging.requests.count == 1)
            }
        }

        @Test func `F39: the token is sent only to upstreams with show-token`() throws {
            try withMachine { machine in
                let logging = "$uri $http_authorization"
                let upstreams = try ["a", "b", "c"].map { try Upstream(machine, $0, logging: logging) }
                let daemon = try daemon(machine, upstreams.map(\.nginx.url)) { daemon in
                    daemon.settings["origins.default", "show-token"] = false
                    guard case .array(var then)? = daemon.settings["origins.default", "then"],
                        case .table(var last) = then[1]
                    else { return }
                    last["show-token"] = true
                    then[1] = .table(last)
                    daemon.settings["origins.default", "then"] = .array(then)
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "TOKEN", "secret") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .null)
                let requests = try upstreams.map { try $0.nginx.requests() }
                #expect(requests == [["/bob -"], ["/bob -"], ["/bob Bearer secret"]])
            }
        }
    }
}
