import Foundation
import Testing

extension EndToEnd {
    /// An origin of several links, each with a server of its own.
    struct ChainTests {
        /// nginx with a directory of pictures of its own.
        private struct Link {
            let pictures: String
            let nginx: Nginx

            init(_ machine: Machine, _ name: String, logging: String = "$uri $status", directives: String = "") throws {
                pictures = try machine.makeDirectory(name)
                nginx = try Nginx(machine, serving: pictures, directives: directives, logging: logging)
            }

            func add(_ profile: String, _ picture: [UInt8]) throws {
                try write(picture, to: "\(pictures)/\(profile).gif")
            }
            func remove(_ profile: String) throws {
                try FileManager.default.removeItem(atPath: "\(pictures)/\(profile).gif")
            }

            /// What came since the last time, by `seen`.
            func asked(_ seen: inout Int) throws -> Int {
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

        @Test func `the first link that has a picture wins, and each one's "none" is remembered`() throws {
            try withMachine { machine in
                let links = try ["a", "b", "c"].map { try Link(machine, $0) }
                var seen = [0, 0, 0]
                func asked() throws -> [Int] { try links.indices.map { try links[$0].asked(&seen[$0]) } }
                let daemon = try daemon(machine, links.map(\.nginx.url))
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                try links[1].add("bob", Picture.gif("second"))
                try links[2].add("bob", Picture.gif("third"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("second")))
                #expect(try asked() == [1, 1, 0])
                #expect(try client.call("GET", "alice", "eve") == .null)
                #expect(try asked() == [1, 1, 1])
                #expect(try client.call("GET", "alice", "eve") == .null)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("second")))
                #expect(try asked() == [0, 0, 0])
            }
        }

        @Test func `I6: 500 GETs of one picture that the last link has are one request of each`() throws {
            try withMachine { machine in
                let links = try ["a", "b", "c"].map { try Link(machine, $0) }
                try links[2].add("bob", Picture.gif("third"))
                let daemon = try daemon(machine, links.map(\.nginx.url))
                #expect(try daemon.connect().call("LOGIN", "alice") == .ok)
                let clients = try (0..<100).map { _ in try daemon.connect() }
                let request = RESPClient.frame(["GET", "alice", "bob"])
                for client in clients { try client.sendRaw(Array(repeatElement(request, count: 5).joined())) }
                for client in clients {
                    for _ in 0..<5 { #expect(try client.receive() == .bulk(Picture.gif("third"))) }
                }
                #expect(try links.map { try $0.nginx.requests().count } == [1, 1, 1])
            }
        }

        @Test func `who gave a picture is asked about it, also after a restart; when it has none, all are`() throws {
            try withMachine { machine in
                let links = try ["a", "b", "c"].map {
                    try Link(machine, $0, directives: "add_header Cache-Control 'max-age=0, must-revalidate' always;")
                }
                let daemon = try daemon(machine, links.map(\.nginx.url))
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                try links[1].add("bob", Picture.gif("second"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("second")))
                let again = try client.call("GET", "alice", "bob", "META")
                #expect(again["source"]?.text == "revalidated" && again["image"] == .bulk(Picture.gif("second")))
                try eventually("it is on disk") { try client.call("STAT", "alice")["images"] == .integer(1) }
                try daemon.restart()
                let other = try daemon.connect()
                #expect(try other.call("GET", "alice", "bob", "META")["source"]?.text == "revalidated")
                try links[1].remove("bob")
                try links[2].add("bob", Picture.gif("third"))
                #expect(try other.call("GET", "alice", "bob") == .bulk(Picture.gif("third")))
                #expect(try links[0].nginx.requests() == ["/bob 404", "/bob 404"])
                #expect(
                    try links[1].nginx.requests() == ["/bob.gif 200", "/bob.gif 304", "/bob.gif 304", "/bob 404"])
                #expect(try links[2].nginx.requests() == ["/bob.gif 200"])
            }
        }

        @Test func `F37: a link that fails is passed over, and asked no more than its breaker lets it be`() throws {
            try withMachine { machine in
                let broken = try GatedOrigin { _ in [.send(GatedOrigin.response([], status: "500 Broken"))] }
                defer { broken.end() }
                let fine = try Link(machine, "b")
                for number in 0..<50 { try fine.add("\(number)", Picture.gif("\(number)")) }
                let daemon = try daemon(machine, [broken.url, fine.nginx.url]) { daemon in
                    daemon.settings["origins.default", "failures"] = 3
                    daemon.settings["origins.default", "backoff"] = "6h"
                    daemon.settings["origins.default", "backoff-max"] = "1d"
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                for number in 0..<50 {
                    #expect(try client.call("GET", "alice", "\(number)") == .bulk(Picture.gif("\(number)")))
                }
                #expect(broken.requests.count == 3)
                #expect(try fine.nginx.requests().count == 50)
                // Nobody knows that there is none: the link that failed may have one.
                #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                #expect(try fine.nginx.requests().count == 51)
                #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                #expect(try fine.nginx.requests().count == 51)
                #expect(try daemon.info("failed_origin") == "52")
            }
        }

        @Test func `F36: a link that hangs leaves time to the next`() throws {
            try withMachine { machine in
                let hanging = try GatedOrigin { _ in [.silence] }
                defer { hanging.end() }
                let fine = try Link(machine, "b")
                try fine.add("bob", Picture.gif("bob"))
                let daemon = try daemon(machine, [hanging.url, fine.nginx.url]) { daemon in
                    daemon.settings["origins.default", "timeout"] = "3s"
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob", "WAIT", "60000") == .bulk(Picture.gif("bob")))
                #expect(hanging.requests.count == 1)
            }
        }

        @Test func `F39: the token goes to the links that are to be shown it, and to no other`() throws {
            try withMachine { machine in
                let links = try ["a", "b", "c"].map { try Link(machine, $0, logging: "$uri $http_authorization") }
                let daemon = try daemon(machine, links.map(\.nginx.url)) { daemon in
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
                #expect(try links.map { try $0.nginx.requests() } == [["/bob -"], ["/bob -"], ["/bob Bearer secret"]])
            }
        }
    }
}
