import Foundation
import Testing

extension EndToEnd {
    /// How images age, are revalidated and are served stale, by what an origin says of them and sees.
    struct FreshnessTests {
        /// With the memory tier, what is revalidated comes from memory; without one, from disk.
        @Test(arguments: ["64MiB", "0"])
        func `1,000 images expire and are revalidated: 1,000 304s by nginx's log, and no body is sent again`(
            memoryTier: String
        ) throws {
            try withMachine { machine in
                let pictures = try machine.makeDirectory("pictures")
                let names = (0..<1_000).map { "friend-\($0)" }
                for name in names { try write(Picture.gif(name, size: 2_000), to: "\(pictures)/\(name).gif") }
                let nginx = try Nginx(
                    machine, serving: pictures,
                    directives: "add_header Cache-Control 'max-age=0, must-revalidate';",
                    logging: "$uri $status $body_bytes_sent")
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(nginx.url)/{profile}")
                    daemon.settings["memory", "tier"] = .string(memoryTier)
                }
                #expect(try daemon.connect().call("LOGIN", "alice") == .ok)

                /// Gets all of them, and says where they came from and what nginx sent for them.
                func round() throws -> (sources: [String: Int], sent: [String: Int]) {
                    let client = try daemon.connect()
                    let before = try nginx.requests().count
                    var sources: [String: Int] = [:]
                    for name in names {
                        let reply = try client.call("GET", "alice", name, "META")
                        sources[reply["source"]?.text ?? reply.brief, default: 0] += 1
                        #expect(reply["image"] == .bulk(Picture.gif(name, size: 2_000)))
                    }
                    let lines = try nginx.requests().dropFirst(before)
                    let sent = lines.map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
                    return (sources, sent.reduce(into: [:]) { $0[$1, default: 0] += 1 })
                }

                let first = try round()
                #expect(first.sources == ["origin": 1_000])
                #expect(first.sent == ["200 2000": 1_000])
                let second = try round()
                #expect(second.sources == ["revalidated": 1_000])
                #expect(second.sent == ["304 0": 1_000])
                try daemon.restart()
                let third = try round()
                #expect(third.sources == ["revalidated": 1_000])
                #expect(third.sent == ["304 0": 1_000])
                print("  1,000 images, memory tier \(memoryTier): \(second.sent), after a restart \(third.sent)")
            }
        }

        @Test func `an image that has changed is replaced, one that has gone is forgotten, and a PUT ends that`() throws
        {
            try withMachine { machine in
                let pictures = try machine.makeDirectory("pictures")
                try write(Picture.gif("old"), to: "\(pictures)/bob.gif")
                let nginx = try Nginx(machine, serving: pictures, directives: "add_header Cache-Control no-cache;")
                let daemon = try machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("old")))
                try write(Picture.gif("new", size: 300), to: "\(pictures)/bob.gif")
                let new = try client.call("GET", "alice", "bob", "META")
                #expect(new["image"] == .bulk(Picture.gif("new", size: 300)))
                #expect(new["source"]?.text == "origin")
                try FileManager.default.removeItem(atPath: "\(pictures)/bob.gif")
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try client.call("GET", "alice", "bob", "CACHED") == .null)
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try nginx.requests() == ["/bob.gif 200", "/bob.gif 200", "/bob 404"])
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("mine")) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("mine")))
            }
        }

        @Test func `RFC 5861 section 3: stale images are served at once while one request asks about them behind`()
            throws
        {
            try withMachine { machine in
                let picture = Picture.gif("bob")
                let origin = try GatedOrigin { request in
                    guard request.number > 1 else {
                        let fields = ["ETag: \"1\"", "Cache-Control: max-age=0, stale-while-revalidate=600"]
                        return [.send(GatedOrigin.response(picture, headers: fields))]
                    }
                    let fields = ["ETag: \"1\"", "Cache-Control: max-age=600"]
                    return [
                        .wait("gate"), .send(GatedOrigin.response([], status: "304 Not Modified", headers: fields)),
                    ]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "60s"
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(picture))
                for _ in 0..<50 {
                    let stale = try client.call("GET", "alice", "bob", "META")
                    #expect(stale["image"] == .bulk(picture))
                    #expect(stale["state"]?.text == "stale")
                    #expect(stale["source"]?.text == "memory")
                }
                try origin.waitForRequests(2)
                #expect(origin.requests.count == 2)
                #expect(origin.requests.last?.headers["if-none-match"] == "\"1\"")
                origin.open("gate")
                try eventually("the image is fresh again") {
                    try client.call("GET", "alice", "bob", "META")["state"]?.text == "fresh"
                }
                #expect(origin.requests.count == 2)
            }
        }

        @Test(arguments: ["64MiB", "0"])
        func `I9: with the origin dead a stale image is served within stale-if-error, and not where that is forbidden`(
            memoryTier: String
        ) throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    let rule =
                        request.path == "/bob" ? "stale-while-revalidate=0, stale-if-error=600" : "must-revalidate"
                    let fields = ["ETag: \"1\"", "Cache-Control: max-age=0, \(rule)"]
                    return [.send(GatedOrigin.response(Picture.gif(request.path), headers: fields))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["memory", "tier"] = .string(memoryTier)
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                for profile in ["bob", "eve"] {
                    #expect(try client.call("GET", "alice", profile) == .bulk(Picture.gif("/\(profile)")))
                }
                try eventually("both are on disk") { try client.call("STAT", "alice")["images"] == .integer(2) }
                origin.end()
                try eventually("the origin is dead") {
                    try client.call("GET", "alice", "bob", "META")["source"]?.text != "origin"
                }
                for _ in 0..<3 {
                    let stale = try client.call("GET", "alice", "bob", "META")
                    #expect(stale["image"] == .bulk(Picture.gif("/bob")))
                    #expect(stale["state"]?.text == "stale")
                    #expect(stale["source"]?.text == (memoryTier == "0" ? "disk" : "memory"))
                }
                #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                // It is asked for with CACHED that it is served all the same.
                #expect(try client.call("GET", "alice", "eve", "CACHED") == .bulk(Picture.gif("/eve")))
            }
        }

        @Test(arguments: ["403 Forbidden", "451 Unavailable For Legal Reasons"])
        func `RFC 5861 section 4: what the origin forbids is not served stale, and the status is told`(
            status: String
        ) throws {
            try withMachine { machine in
                let picture = Picture.gif("bob")
                let origin = try GatedOrigin { request in
                    let rule = "Cache-Control: max-age=0, stale-while-revalidate=0, stale-if-error=600"
                    return request.number > 1
                        ? [.send(GatedOrigin.response([], status: status))]
                        : [.send(GatedOrigin.response(picture, headers: [rule]))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(picture))
                let refused = try client.call("GET", "alice", "bob")
                #expect(
                    refused.code == "ORIGIN" && refused.brief.contains(String(status.prefix(3))), "\(refused.brief)")
            }
        }

        @Test func `section 4.2: a picture behind a redirect is asked about when the redirect is over`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    guard request.path == "/bob" else {
                        let year = ["Cache-Control: max-age=31536000"]
                        return [.send(GatedOrigin.response(Picture.gif(request.path), headers: year))]
                    }
                    let fields = ["Location: /v\(request.number)", "Cache-Control: no-cache"]
                    return [.send(GatedOrigin.response([], status: "302 Found", headers: fields))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                for path in ["/v1", "/v3"] {
                    #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif(path)))
                }
                #expect(origin.requests.map(\.path) == ["/bob", "/v1", "/bob", "/v3"])
            }
        }

        @Test func `age and ttl count from what the origin says, to the second`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in
                    [
                        .send(
                            GatedOrigin.response(
                                Picture.gif("bob"), headers: ["Age: 100", "Cache-Control: max-age=1000"]))
                    ]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                let start = ContinuousClock.now
                for source in ["origin", "memory"] {
                    let reply = try client.call("GET", "alice", "bob", "META")
                    // However slow this machine is, it was not made before it was asked for.
                    let elapsed = Int64((ContinuousClock.now - start).components.seconds) + 1
                    let age = try #require(reply["age"]?.number)
                    #expect((100...(100 + elapsed)).contains(age))
                    #expect(reply["ttl"]?.number == 1_000 - age)
                    #expect(reply["source"]?.text == source)
                }
            }
        }
    }
}
