import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// The operator's picture for those of whom nobody has one.
    struct FallbackTests {
        @Test func `who has no picture has the operator's: META and STAT say so, and it is nobody's image`() throws {
            try withMachine { machine in
                let nginx = try Nginx(machine, serving: try machine.makeDirectory("pictures"))
                let nobody = Picture.gif("nobody")
                try write(nobody, to: machine.path("nobody.gif"))
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(nginx.url)/{profile}")
                    daemon.settings["origins.default", "fallback"] = .string(machine.path("nobody.gif"))
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                // Nobody has been asked.
                #expect(try client.call("STAT", "alice", "bob") == .null)
                #expect(try client.call("GET", "alice", "bob", "CACHED") == .null)
                #expect(try client.call("GET", "alice", "bob") == .bulk(nobody))
                let meta = try client.call("GET", "alice", "bob", "META")
                #expect(meta["source"]?.text == "fallback" && meta["image"] == .bulk(nobody))
                guard case .integer(let ttl)? = meta["ttl"] else { throw Failure("no ttl: \(meta.brief)") }
                #expect((1...300).contains(ttl) && meta["state"]?.text == "fresh", "\(meta.brief)")
                let digest = try #require(meta["digest"]?.text)
                #expect(try client.call("GET", "alice", "bob", "IFNOT", digest) == .simple("UNCHANGED"))
                #expect(try client.call("STAT", "alice", "bob")["source"]?.text == "fallback")
                #expect(try client.call("GET", "alice", "bob", "CACHED") == .bulk(nobody))
                #expect(try client.call("MGET", "alice", "1", "bob", "SIZE", "64") == .array([.bulk(nobody)]))
                #expect(try client.call("STAT", "alice")["images"] == .integer(0))
                // With SIZE it is known of the one without, of which the other would be made.
                #expect(try nginx.requests() == ["/bob 404"])
                #expect(try daemon.info("missing") == "1")
                #expect(try daemon.info("fallbacks_served") == "6")

                #expect(try client.call("PUT", "alice", "bob", Picture.gif("mine")) == .ok)
                #expect(try client.call("GET", "alice", "bob", "IFNOT", digest) == .bulk(Picture.gif("mine")))
            }
        }

        @Test func `a failure is told as one, and is no reason to serve it`() throws {
            try withMachine { machine in
                let broken = try GatedOrigin { _ in [.send(GatedOrigin.response([], status: "500 Broken"))] }
                defer { broken.end() }
                try write(Picture.gif("nobody"), to: machine.path("nobody.gif"))
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(broken.url)/{profile}")
                    daemon.settings["origins.default", "fallback"] = .string(machine.path("nobody.gif"))
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                #expect(try daemon.info("failed_origin") == "1" && daemon.info("fallbacks_served") == "0")
            }
        }

        @Test func `a reload reads it again, and with a picture that is none nothing changes`() throws {
            try withMachine { machine in
                let nginx = try Nginx(machine, serving: try machine.makeDirectory("pictures"))
                let file = machine.path("nobody.gif")
                try write(Picture.gif("old"), to: file)
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(nginx.url)/{profile}")
                    daemon.settings["origins.default", "fallback"] = .string(file)
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("old")))
                try write(Array("no picture".utf8), to: file)
                daemon.process?.signal(SIGHUP)
                try eventually("the log says why") { daemon.log.contains("is no such picture") }
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("old")))
                try write(Picture.gif("new"), to: file)
                daemon.process?.signal(SIGHUP)
                try eventually("the new one is served") {
                    try client.call("GET", "alice", "bob") == .bulk(Picture.gif("new"))
                }
                #expect(try nginx.requests() == ["/bob 404"])
            }
        }
    }
}
