import Foundation
import Glibc
import Testing

extension EndToEnd.Origins {
    /// The fallback image of an origin.
    struct FallbackTests {
        @Test func `a profile without an image has the fallback, which META and STAT report`() throws {
            try withMachine { machine in
                let nginx = try Nginx(machine, serving: try machine.makeDirectory("images"))
                let fallback = TestImage.gif("fallback")
                try write(fallback, to: machine.path("fallback.gif"))
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(nginx.url)/{profile}")
                    daemon.settings["origins.default", "fallback"] = .string(machine.path("fallback.gif"))
                }
                let client = try daemon.connect(loggedInAs: "alice")
                // Before the first download, there is no fallback.
                #expect(try client.call("STAT", "alice", "bob") == .null)
                #expect(try client.call("GET", "alice", "bob", "CACHED") == .null)
                #expect(try client.call("GET", "alice", "bob") == .bulk(fallback))
                let meta = try client.call("GET", "alice", "bob", "META")
                #expect(meta["source"]?.text == "fallback" && meta["image"] == .bulk(fallback))
                guard case .integer(let ttl)? = meta["ttl"] else { throw Failure("no ttl: \(meta.brief)") }
                #expect((1...300).contains(ttl) && meta["state"]?.text == "fresh", "\(meta.brief)")
                let digest = try #require(meta["digest"]?.text)
                #expect(try client.call("GET", "alice", "bob", "IFNOT", digest) == .simple("UNCHANGED"))
                #expect(try client.call("STAT", "alice", "bob")["source"]?.text == "fallback")
                #expect(try client.call("GET", "alice", "bob", "CACHED") == .bulk(fallback))
                #expect(try client.call("MGET", "alice", "1", "bob", "SIZE", "64") == .array([.bulk(fallback)]))
                #expect(try client.call("STAT", "alice")["images"] == .integer(0))
                // A missing source image implies that there is no rendition.
                #expect(try nginx.requests() == ["/bob 404"])
                #expect(try daemon.info("origins_downloads_missing") == "1")
                #expect(try daemon.info("fallbacks_served") == "6")

                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("mine")) == .ok)
                #expect(try client.call("GET", "alice", "bob", "IFNOT", digest) == .bulk(TestImage.gif("mine")))
            }
        }

        @Test func `the fallback does not replace an error`() throws {
            try withMachine { machine in
                let broken = try GatedOrigin { _ in [.send(GatedOrigin.response([], status: "500 Broken"))] }
                defer { broken.end() }
                try write(TestImage.gif("fallback"), to: machine.path("fallback.gif"))
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(broken.url)/{profile}")
                    daemon.settings["origins.default", "fallback"] = .string(machine.path("fallback.gif"))
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                #expect(try daemon.info("origins_downloads_failed") == "1" && daemon.info("fallbacks_served") == "0")
            }
        }

        @Test func `a reload reads the fallback again and keeps the old one if the file is invalid`() throws {
            try withMachine { machine in
                let nginx = try Nginx(machine, serving: try machine.makeDirectory("images"))
                let file = machine.path("fallback.gif")
                try write(TestImage.gif("old"), to: file)
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(nginx.url)/{profile}")
                    daemon.settings["origins.default", "fallback"] = .string(file)
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("old")))
                try write(Array("no image".utf8), to: file)
                daemon.process?.signal(SIGHUP)
                try eventually("the failure is logged") { daemon.log.contains("is not a valid image") }
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("old")))
                try write(TestImage.gif("new"), to: file)
                daemon.process?.signal(SIGHUP)
                try eventually("the new fallback is served") {
                    try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("new"))
                }
                #expect(try nginx.requests() == ["/bob 404"])
            }
        }
    }
}
