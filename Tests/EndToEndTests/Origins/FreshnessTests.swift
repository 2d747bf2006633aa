import Foundation
import Testing

extension EndToEnd.Origins {
    /// Expiry, revalidation and stale responses.
    struct FreshnessTests {
        /// Images are revalidated from memory, and without a memory tier from disk.
        @Test(arguments: ["64MiB", "0"])
        func `1,000 expired images are revalidated with 1,000 responses of status 304`(
            memoryTier: String
        ) throws {
            try withMachine { machine in
                let images = try machine.makeDirectory("images")
                let names = (0..<1_000).map { "friend-\($0)" }
                for name in names { try write(TestImage.gif(name, size: 2_000), to: "\(images)/\(name).gif") }
                let nginx = try Nginx(
                    machine, serving: images,
                    directives: "add_header Cache-Control 'max-age=0, must-revalidate';",
                    logging: "$uri $status $body_bytes_sent")
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(nginx.url)/{profile}")
                    daemon.settings["memory", "tier"] = .string(memoryTier)
                }
                _ = try daemon.connect(loggedInAs: "alice")

                /// Requests all images. Counts META's sources, and status and body size in nginx's log.
                func round() throws -> (sources: [String: Int], sent: [String: Int]) {
                    let client = try daemon.connect()
                    let before = try nginx.requests().count
                    var sources: [String: Int] = [:]
                    for name in names {
                        let reply = try client.call("GET", "alice", name, "META")
                        sources[reply["source"]?.text ?? reply.brief, default: 0] += 1
                        #expect(reply["image"] == .bulk(TestImage.gif(name, size: 2_000)))
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

        @Test func `a changed image is replaced, and a deleted one is missing until a PUT`() throws {
            try withMachine { machine in
                let images = try machine.makeDirectory("images")
                try write(TestImage.gif("old"), to: "\(images)/bob.gif")
                let nginx = try Nginx(machine, serving: images, directives: "add_header Cache-Control no-cache;")
                let daemon = try machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("old")))
                try write(TestImage.gif("new", size: 300), to: "\(images)/bob.gif")
                let new = try client.call("GET", "alice", "bob", "META")
                #expect(new["image"] == .bulk(TestImage.gif("new", size: 300)))
                #expect(new["source"]?.text == "origin")
                try FileManager.default.removeItem(atPath: "\(images)/bob.gif")
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try client.call("GET", "alice", "bob", "CACHED") == .null)
                #expect(try client.call("GET", "alice", "bob") == .null)
                #expect(try nginx.requests() == ["/bob.gif 200", "/bob.gif 200", "/bob 404"])
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("mine")) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("mine")))
            }
        }

        @Test func `RFC 5861 section 3: a stale image is served during one revalidation in the background`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob")
                let origin = try GatedOrigin { request in
                    guard request.number > 1 else {
                        let fields = ["ETag: \"1\"", "Cache-Control: max-age=0, stale-while-revalidate=600"]
                        return [.send(GatedOrigin.response(image, headers: fields))]
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
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(image))
                for _ in 0..<50 {
                    let stale = try client.call("GET", "alice", "bob", "META")
                    #expect(stale["image"] == .bulk(image))
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
        func `I9: without its origin, a stale image is served within stale-if-error unless must-revalidate`(
            memoryTier: String
        ) throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    let rule =
                        request.path == "/bob" ? "stale-while-revalidate=0, stale-if-error=600" : "must-revalidate"
                    let fields = ["ETag: \"1\"", "Cache-Control: max-age=0, \(rule)"]
                    return [.send(GatedOrigin.response(TestImage.gif(request.path), headers: fields))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["memory", "tier"] = .string(memoryTier)
                }
                let client = try daemon.connect(loggedInAs: "alice")
                for profile in ["bob", "eve"] {
                    #expect(try client.call("GET", "alice", profile) == .bulk(TestImage.gif("/\(profile)")))
                }
                try eventually("both are on disk") { try client.call("STAT", "alice")["images"] == .integer(2) }
                origin.end()
                try eventually("the origin is unreachable") {
                    try client.call("GET", "alice", "bob", "META")["source"]?.text != "origin"
                }
                for _ in 0..<3 {
                    let stale = try client.call("GET", "alice", "bob", "META")
                    #expect(stale["image"] == .bulk(TestImage.gif("/bob")))
                    #expect(stale["state"]?.text == "stale")
                    #expect(stale["source"]?.text == (memoryTier == "0" ? "disk" : "memory"))
                }
                #expect(try client.call("GET", "alice", "eve").code == "ORIGIN")
                // CACHED also returns stale images.
                #expect(try client.call("GET", "alice", "eve", "CACHED") == .bulk(TestImage.gif("/eve")))
            }
        }

        @Test(arguments: ["403 Forbidden", "451 Unavailable For Legal Reasons"])
        func `RFC 5861 section 4: a 403 or 451 is an error with the status, not a stale image`(
            status: String
        ) throws {
            try withMachine { machine in
                let image = TestImage.gif("bob")
                let origin = try GatedOrigin { request in
                    let rule = "Cache-Control: max-age=0, stale-while-revalidate=0, stale-if-error=600"
                    return request.number > 1
                        ? [.send(GatedOrigin.response([], status: status))]
                        : [.send(GatedOrigin.response(image, headers: [rule]))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(image))
                let rejected = try client.call("GET", "alice", "bob")
                #expect(
                    rejected.code == "ORIGIN" && rejected.brief.contains(String(status.prefix(3))), "\(rejected.brief)")
            }
        }

        @Test func `an image after a redirect expires with the redirect`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    guard request.path == "/bob" else {
                        let year = ["Cache-Control: max-age=31536000"]
                        return [.send(GatedOrigin.response(TestImage.gif(request.path), headers: year))]
                    }
                    let fields = ["Location: /v\(request.number)", "Cache-Control: no-cache"]
                    return [.send(GatedOrigin.response([], status: "302 Found", headers: fields))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect(loggedInAs: "alice")
                for path in ["/v1", "/v3"] {
                    #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif(path)))
                }
                #expect(origin.requests.map(\.path) == ["/bob", "/v1", "/bob", "/v3"])
            }
        }

        @Test func `age and ttl follow the origin's header fields, to the second`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in
                    let fields = ["Age: 100", "Cache-Control: max-age=1000"]
                    return [.send(GatedOrigin.response(TestImage.gif("bob"), headers: fields))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect(loggedInAs: "alice")
                let start = ContinuousClock.now
                for source in ["origin", "memory"] {
                    let reply = try client.call("GET", "alice", "bob", "META")
                    // The image is at most as old as the time since the first request.
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
