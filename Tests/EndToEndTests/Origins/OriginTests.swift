import Foundation
import Testing

extension EndToEnd.Origins {
    /// Downloads from nginx and from faulty origins.
    struct OriginTests {
        /// With the default memory tier, most images of the second round come from memory; without one, all come from
        /// disk.
        @Test(arguments: ["64MiB", "0"])
        func `I5: 500 images are returned unchanged and downloaded once, also with a restart`(
            memoryTier: String
        ) throws {
            try withMachine { machine in
                try machine.runSuccessfully([
                    "\(Files.repository)/tools/make-images", machine.path("images"), "500",
                ])
                let names = try FileManager.default.contentsOfDirectory(atPath: machine.path("images")).sorted()
                #expect(names.count == 500)
                #expect(Set(names.map { URL(fileURLWithPath: $0).pathExtension }).count == 5)
                let nginx = try Nginx(machine, serving: machine.path("images"))
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(nginx.url)/{profile}")
                    daemon.settings["storage", "user-quota"] = "512MiB"
                    daemon.settings["memory", "tier"] = .string(memoryTier)
                }
                _ = try daemon.connect(loggedInAs: "alice")

                func round(_ name: String) throws -> [String: Int] {
                    let client = try daemon.connect()
                    var sources: [String: Int] = [:]
                    var wrong: [String] = []
                    let duration = try milliseconds {
                        for name in names {
                            let profile = URL(fileURLWithPath: name).deletingPathExtension().lastPathComponent
                            let reply = try client.call("GET", "alice", profile, "META")
                            sources[reply["source"]?.text ?? reply.brief, default: 0] += 1
                            if reply["image"]?.bytes != (try read(machine.path("images/\(name)"))) {
                                wrong.append(name)
                            }
                        }
                    }
                    #expect(wrong.isEmpty, "\(name)")
                    print("  500 images, memory tier \(memoryTier), \(name): \(Int(duration)) ms, \(sources)")
                    return sources
                }

                #expect(try round("first round")["origin"] == 500)
                #expect(try Set(nginx.requests().map { $0.split(separator: " ").first ?? "" }).count == 500)
                #expect(try nginx.requests().count == 500)
                let second = try round("second round")
                #expect(try nginx.requests().count == 500)
                if memoryTier == "0" { #expect(second == ["disk": 500]) }
                try daemon.restart()
                #expect(try round("after a restart") == ["disk": 500])
                #expect(try nginx.requests().count == 500)
            }
        }

        @Test(
            arguments: [
                ("200 OK", ["Content-Type: image/svg+xml"], "<svg xmlns='http://www.w3.org/2000/svg'/>", "BADIMAGE"),
                ("200 OK", ["Content-Type: text/html"], "<html>log in</html>", "BADIMAGE"),
                ("200 OK", ["Content-Encoding: gzip"], "GIF89a", "ORIGIN"),
                ("200 OK", [], String(repeating: "x", count: 200_000), "TOOLARGE"),
                ("201 Created", [], "", "BADIMAGE"), ("204 No Content", [], "", nil), ("404 Not Found", [], "", nil),
                ("403 Forbidden", [], "", "ORIGIN"), ("400 Bad Request", [], "", "ORIGIN"),
                ("302 Found", ["Location: ftp://origin.test/"], "", "DENIED"),
            ] as [(String, [String], String, String?)])
        func `20 GETs without a usable image cause one request to the origin, until a PURGE or a PUT`(
            status: String, headers: [String], body: String, code: String?
        ) throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in
                    [.send(GatedOrigin.response(Array(body.utf8), status: status, headers: headers))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["limits", "image"] = "100KiB"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                func get() throws {
                    let reply = try client.call("GET", "alice", "bob")
                    #expect(code == nil ? reply == .null : reply.code == code, "\(reply.brief)")
                }
                for _ in 0..<20 { try get() }
                #expect(origin.requests.count == 1)
                _ = try client.call("PURGE", "alice", "1", "bob")
                for _ in 0..<2 { try get() }
                #expect(origin.requests.count == 2)
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("mine")) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("mine")))
                #expect(origin.requests.count == 2)
            }
        }

        @Test func `I6: 1,000 GETs of one missing image over 200 connections cause one request to the origin`() throws {
            try withMachine { machine in
                let images = try machine.makeDirectory("images")
                let image = TestImage.gif("bob", size: 8_192)
                try write(image, to: "\(images)/bob.gif")
                let nginx = try Nginx(machine, serving: images)
                let daemon = try machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") }
                _ = try daemon.connect(loggedInAs: "alice")

                let clients = try (0..<200).map { _ in try daemon.connect() }
                for client in clients { try client.send(["GET", "alice", "bob"], count: 5) }
                var count = 0
                for client in clients {
                    for _ in 0..<5 where try client.receive() == .bulk(image) { count += 1 }
                }
                #expect(count == 1_000)
                #expect(try nginx.requests() == ["/bob.gif 200"])
            }
        }

        @Test func `I6: 1,000 GETs during one download all get its image`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob", size: 8_192)
                let origin = try GatedOrigin { _ in [.wait("gate"), .send(GatedOrigin.response(image))] }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "60s"
                }
                _ = try daemon.connect(loggedInAs: "alice")
                let clients = try (0..<200).map { _ in try daemon.connect() }
                for client in clients { try client.send(["GET", "alice", "bob"], count: 5) }
                try origin.waitForRequests(1)
                // The daemon answers PING on another connection; on these, replies keep the order of requests.
                #expect(try daemon.connect().call("PING") == .simple("PONG"))
                #expect(clients.allSatisfy { !$0.hasReply(within: 0) })
                origin.open("gate")
                var count = 0
                for client in clients {
                    for _ in 0..<5 where try client.receive() == .bulk(image) { count += 1 }
                }
                #expect(count == 1_000)
                #expect(origin.requests.count == 1)
            }
        }

        @Test func `F55: concurrent GETs of one profile with two URLs get separate downloads`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    [.wait(request.path), .send(GatedOrigin.response(TestImage.gif(request.path)))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "allow"] = [.string(origin.url)]
                }
                let (one, two) = (try daemon.connect(), try daemon.connect())
                #expect(try one.call("LOGIN", "alice") == .ok)
                try one.send("GET", "alice", "bob", "URL", "\(origin.url)/one")
                try two.send("GET", "alice", "bob", "URL", "\(origin.url)/two")
                try origin.waitForRequests(2)
                origin.open("/two")
                #expect(try two.receive() == .bulk(TestImage.gif("/two")))
                origin.open("/one")
                #expect(try one.receive() == .bulk(TestImage.gif("/one")))
                #expect(Set(origin.requests.map(\.path)) == ["/one", "/two"])
            }
        }

        @Test(arguments: [
            "http://127.0.0.1.evil.example/a/x", "http://127.0.0.1@evil.example/a/x", "http://evil.example/a/x",
            "http://127.0.0.1:PORT/a/../b", "http://127.0.0.1:PORT/a/%2e%2e/b", "http://127.0.0.1:PORT/ab",
            "http://127.0.0.1:PORT.evil.example/a/x", "http://127.0.0.1:PORT@evil.example/a/x",
            "http://127.0.0.1:1/a/x",
            "https://127.0.0.1:PORT/a/x", "ftp://127.0.0.1:PORT/a/x", "file:///a/x", "/a/x", "",
            "http://127.0.0.1:PORT/a/x y", "http://127.0.0.1:PORT\\@evil.example/a/x",
        ])
        func `F57: a URL that the origin does not allow is denied without a request`(url: String) throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { _ in TestImage.gif("bob") }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "allow"] = [.string("\(origin.url)/a")]
                }
                let client = try daemon.connect(loggedInAs: "alice")
                let rejected = try client.call(
                    "GET", "alice", "bob", "URL", url.replacing("PORT", with: "\(origin.port)"))
                #expect(rejected.code == "DENIED" || rejected.code == "ERR", "\(rejected.brief)")
                #expect(origin.requests.isEmpty)
                let allowed = try client.call("GET", "alice", "bob", "URL", "\(origin.url)/a/x")
                #expect(allowed == .bulk(TestImage.gif("bob")))
            }
        }

        /// The point at which the origin stops responding.
        enum Hang: String, CaseIterable, Sendable {
            case beforeConnect, beforeHeaders, inHeaders, inBody
        }

        @Test(arguments: Hang.allCases)
        func `F36: a hanging origin is a TIMEOUT, and its connection can be used again`(hang: Hang) throws {
            try withMachine { machine in
                let image = TestImage.gif("bob", size: 4_000)
                let whole = GatedOrigin.response(image)
                let origin = try GatedOrigin { request in
                    guard request.path == "/hang" else { return [.send(whole)] }
                    return switch hang {
                    case .beforeConnect, .beforeHeaders: [.silence]
                    case .inHeaders: [.send(Array(whole.prefix(30))), .silence]
                    case .inBody: [.send(Array(whole.prefix(1_000))), .silence]
                    }
                }
                defer { origin.end() }
                // A listener with a full backlog: the kernel does not complete further connections.
                let (full, fullPort) = try listenTCP(backlog: 0)
                let filler = try connectTCP(fullPort)
                defer {
                    close(full)
                    close(filler)
                }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "allow"] = [.string("http://127.0.0.1:\(fullPort)")]
                    daemon.settings["origins.default", "connections"] = 1
                    daemon.settings["origins.default", "connect-timeout"] = "1s"
                    daemon.settings["origins.default", "timeout"] = "2s"
                    daemon.settings["limits", "downloads-per-uid"] = 1
                }
                let client = try daemon.connect(loggedInAs: "alice")
                let hung =
                    hang == .beforeConnect
                    ? try client.call("GET", "alice", "bob", "URL", "http://127.0.0.1:\(fullPort)/hang")
                    : try client.call("GET", "alice", "hang")
                #expect(hung.code == "TIMEOUT", "\(hung.brief)")
                #expect(try client.call("GET", "alice", "good") == .bulk(image))
                #expect(try client.call("GET", "alice", "hang", "CACHED") == .null)
            }
        }

        @Test func `F36: a stale image is served while its origin hangs`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob")
                let origin = try GatedOrigin { request in
                    request.number > 1
                        ? [.silence] : [.send(GatedOrigin.response(image, headers: ["Cache-Control: max-age=0"]))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "2s"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(image))
                let stale = try client.call("GET", "alice", "bob", "META")
                #expect(stale["image"] == .bulk(image), "\(stale.brief)")
                #expect(stale["state"]?.text == "stale")
            }
        }

        @Test func `I5, F35: a truncated or endless body is an error and is not stored`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob", size: 4_000)
                let origin = try GatedOrigin { request in
                    switch request.path {
                    case "/short": [.send(GatedOrigin.response(Array(image.prefix(1_000)), length: 4_000)), .close]
                    case "/endless":
                        [.send(Array("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".utf8))]
                            + Array(
                                repeating: .send(
                                    Array("10000\r\n".utf8) + .init(repeating: 7, count: 65_536) + [13, 10]),
                                count: 200) + [.silence]
                    default: [.send(GatedOrigin.response(image))]
                    }
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["limits", "image"] = "1MiB"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "short").code == "ORIGIN")
                #expect(try client.call("GET", "alice", "endless").code == "TOOLARGE")
                #expect(try client.call("GET", "alice", "whole") == .bulk(image))
                // The reply to a download comes before the write to disk.
                try eventually("one image is stored") { try client.call("STAT", "alice")["images"] == .integer(1) }
                #expect(try client.call("GET", "alice", "short", "CACHED") == .null)
                #expect(try client.call("GET", "alice", "endless", "CACHED") == .null)
                #expect(daemon.imageFiles.count == 1)
            }
        }

        @Test func `F38: a response that is not a valid image is BADIMAGE and is not stored`() throws {
            try withMachine { machine in
                // A GIF of 65,535 × 65,535 pixels.
                let sides: [UInt8] = [0xff, 0xff, 0xff, 0xff]
                let huge = Array("GIF89a".utf8) + sides + [0, 0, 0, 0x2C, 0, 0, 0, 0] + sides + [0, 2, 0, 0x3B]
                let origin = try GatedOrigin { request in
                    switch request.path {
                    case "/html": [.send(GatedOrigin.response(Array("<html><body>no</body></html>".utf8)))]
                    case "/svg": [.send(GatedOrigin.response(Array("<svg xmlns='http://www.w3.org/2000/svg'/>".utf8)))]
                    default: [.send(GatedOrigin.response(huge))]
                    }
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect(loggedInAs: "alice")
                for profile in ["html", "svg", "huge"] {
                    #expect(try client.call("GET", "alice", profile).code == "BADIMAGE")
                    #expect(try client.call("GET", "alice", profile, "CACHED") == .null)
                }
                #expect(daemon.imageFiles.isEmpty)
            }
        }
    }
}
