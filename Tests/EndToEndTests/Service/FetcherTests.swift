import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// The process that downloads: what becomes of the daemon when it dies, and of what the daemon holds when somebody
    /// has broken into it.
    struct FetcherTests {
        /// The one that downloads.
        private func worker(_ daemon: Daemon) throws -> pid_t {
            let processes = try daemon.fetcherProcesses()
            return try #require(processes.last, "\(processes)")
        }

        @Test func `I9: a fetcher that dies fails what was under way, and the next one does what follows`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    let answer = GatedOrigin.response(Picture.gif(request.path))
                    return request.path == "/eve" ? [.wait("eve"), .send(answer)] : [.send(answer)]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("/bob")))
                let first = try worker(daemon)
                try client.send("GET", "alice", "eve")
                try origin.waitForRequests(2)
                #expect(kill(first, SIGKILL) == 0)
                #expect(try client.receive().code == "ORIGIN")
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("/bob")))
                try eventually("another fetcher answers") {
                    try client.call("GET", "alice", "zoe") == .bulk(Picture.gif("/zoe"))
                }
                #expect(try worker(daemon) != first)
                #expect(daemon.log.contains("the process that downloads has ended"))
            }
        }

        @Test func `I3: with the daemon its fetcher ends, however the daemon does`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let helpers = try daemon.helperProcesses()
                #expect(try daemon.fetcherProcesses().count == 1)
                #expect(helpers.count == 2)
                daemon.kill()
                try eventually("they have ended") { helpers.allSatisfy { !Files.exists("/proc/\($0)/exe") } }
            }
        }

        @Test func `F82: a daemon whose starter was killed says that it has to be restarted`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { Picture.gif($0.path) }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("/bob")))
                let (starter, fetcher) = (try daemon.starterProcess(), try worker(daemon))
                #expect(kill(starter, SIGKILL) == 0)
                // What is running goes on.
                #expect(try client.call("GET", "alice", "eve") == .bulk(Picture.gif("/eve")))
                #expect(kill(fetcher, SIGKILL) == 0)
                var requests = 0
                try eventually("the answer says so") {
                    requests += 1
                    guard case .error("ORIGIN", let reason) = try client.call("GET", "alice", "zoe\(requests)") else {
                        return false
                    }
                    return reason.contains("restart thumbcached")
                }
                #expect(daemon.log.contains("no process that downloads can be started"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("/bob")))
            }
        }

        /// Run by an account that is not root, whom the kernel would refuse nothing.
        @Test func `I11: no program of the same uid gets at the memory of what starts fetchers, or of a fetcher`()
            throws
        {
            try withMachine { machine in
                let attack = Account(4_001).running([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/same_uid.py",
                    "\(Files.built)/thumbcached", "\(Files.built)/thumbcached-fetcher",
                ])
                let run = try machine.run(attack)
                #expect(run.status == 0, "\(run.everything)")
            }
        }

        @Test func `F15: a fetcher that may have few descriptors makes fewer downloads at once, and says so`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.wrapper = ["prlimit", "--nofile=400:400", "--"] }
                try eventually("it says so") { daemon.log.contains("downloads=") }
            }
        }

        @Test(.enabled(if: geteuid() == 0, "whoever is not root downloads as the daemon's own user"))
        func `I9: authorities that the fetcher cannot get at cost their origin's downloads, and no others`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { Picture.gif($0.path) }
                defer { origin.end() }
                let hidden = machine.path("hidden")
                #expect(mkdir(hidden, 0o700) == 0)
                try write(Array("-----BEGIN CERTIFICATE-----\n".utf8), to: "\(hidden)/own.pem")
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.other", "url"] = "https://other.test/{profile}"
                    daemon.settings["origins.other", "ca-file"] = .string("\(hidden)/own.pem")
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("/bob")))
                #expect(daemon.log.contains("ca-file cannot be read"), "\(daemon.log)")
            }
        }

        /// Somebody has broken into libcurl, and tries for all that the daemon holds, and more.
        @Test func `I1, I11: whoever has broken into the fetcher gets at no key, no store, no socket and no memory`()
            throws
        {
            try withMachine { machine in
                let origin = try GatedOrigin.images { Picture.gif($0.path) }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.environment["LD_PRELOAD"] = "\(Files.built)/libHostileFetcher.so"
                    daemon.environment["THUMBCACHED_HOSTILE_PATHS"] = [
                        daemon.cache, daemon.state, daemon.runtime, daemon.configuration, daemon.directory,
                    ].joined(separator: ":")
                    daemon.environment["THUMBCACHED_HOSTILE_SOCKETS"] = daemon.socket
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("/bob")))
                try eventually("it has tried all") { daemon.log.contains("hostile: end") }
                let tries = daemon.log.split(separator: "\n").filter { $0.hasPrefix("hostile: ") }.dropLast()
                #expect(tries.count > 25, "\(daemon.log)")
                #expect(tries.filter { !$0.contains(": refused (") } == [])
                for what in ["open \(daemon.configuration)", "list \(daemon.cache)", "connect \(daemon.socket)"] {
                    #expect(
                        tries.contains { $0.hasPrefix("hostile: \(what): refused") && !$0.contains("ENOENT") },
                        "\(what)")
                }
            }
        }
    }
}
