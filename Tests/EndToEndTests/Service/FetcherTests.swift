import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// The fetcher process: consequences of its death, and of an attacker's control over it.
    struct FetcherTests {
        private func fetcher(_ daemon: Daemon) throws -> pid_t {
            let processes = try daemon.fetcherProcesses()
            return try #require(processes.last, "\(processes)")
        }

        @Test func `I9: the death of the fetcher fails its requests, and the next fetcher serves later ones`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    let answer = GatedOrigin.response(TestImage.gif(request.path))
                    return request.path == "/eve" ? [.wait("eve"), .send(answer)] : [.send(answer)]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("/bob")))
                let first = try fetcher(daemon)
                try client.send("GET", "alice", "eve")
                try origin.waitForRequests(2)
                #expect(kill(first, SIGKILL) == 0)
                #expect(try client.receive().code == "ORIGIN")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("/bob")))
                try eventually("another fetcher answers") {
                    try client.call("GET", "alice", "zoe") == .bulk(TestImage.gif("/zoe"))
                }
                #expect(try fetcher(daemon) != first)
                #expect(daemon.log.contains("helper process failed"))
            }
        }

        @Test func `I3: the helper processes end when the daemon is killed`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                // Until the new process has called execve(2), it has the name of the fork server.
                try eventually("the fetcher runs") { try daemon.fetcherProcesses().count == 1 }
                let helpers = try daemon.helperProcesses()
                #expect(helpers.count == 2)
                daemon.kill()
                try eventually("the helpers have ended") { helpers.allSatisfy(Daemon.hasEnded) }
            }
        }

        @Test func `F82: without its fork server, the daemon reports that it must be restarted`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { TestImage.gif($0.path) }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("/bob")))
                let (forkServer, downloader) = (try daemon.forkServerProcess(), try fetcher(daemon))
                #expect(kill(forkServer, SIGKILL) == 0)
                // The running fetcher still works.
                #expect(try client.call("GET", "alice", "eve") == .bulk(TestImage.gif("/eve")))
                #expect(kill(downloader, SIGKILL) == 0)
                var requests = 0
                try eventually("the error asks for a restart") {
                    requests += 1
                    guard case .error("ORIGIN", let reason) = try client.call("GET", "alice", "zoe\(requests)") else {
                        return false
                    }
                    return reason.contains("restart thumbcached")
                }
                #expect(daemon.log.contains("the fork server ended; restart thumbcached"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("/bob")))
            }
        }

        /// Runs as another uid than root, which may read all memory.
        @Test func `I11: no program of the same uid can read the memory of the fork server or a fetcher`()
            throws
        {
            try withMachine { machine in
                let attack = Account(4_001).running([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/same_uid.py",
                    "\(Files.built)/thumbcached", "\(Files.built)/thumbcached-fetcher",
                ])
                try machine.runSuccessfully(attack)
            }
        }

        @Test func `F15: a fetcher with few descriptors logs a lower limit of concurrent downloads`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.wrapper = ["prlimit", "--nofile=400:400", "--"] }
                try eventually("the new limit is logged") { daemon.log.contains("downloads=") }
            }
        }

        @Test(.enabled(if: geteuid() == 0, "without root, the fetcher has the daemon's uid"))
        func `I9: an unreadable ca-file affects only the downloads of its origin`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { TestImage.gif($0.path) }
                defer { origin.end() }
                let hidden = machine.path("hidden")
                #expect(mkdir(hidden, 0o700) == 0)
                try write(Array("-----BEGIN CERTIFICATE-----\n".utf8), to: "\(hidden)/own.pem")
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.other", "url"] = "https://other.test/{profile}"
                    daemon.settings["origins.other", "ca-file"] = .string("\(hidden)/own.pem")
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("/bob")))
                #expect(daemon.log.contains("ca-file is not readable"), "\(daemon.log)")
            }
        }

        /// A preloaded library acts as an attacker who controls libcurl.
        @Test func `I1, I11: a compromised fetcher reaches no key, no store, no socket and no memory`()
            throws
        {
            try withMachine { machine in
                let origin = try GatedOrigin.images { TestImage.gif($0.path) }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.environment["LD_PRELOAD"] = "\(Files.built)/libHostileFetcher.so"
                    daemon.environment["THUMBCACHED_HOSTILE_PATHS"] = [
                        daemon.cache, daemon.state, daemon.runtime, daemon.configuration, daemon.directory,
                    ].joined(separator: ":")
                    daemon.environment["THUMBCACHED_HOSTILE_SOCKETS"] = daemon.socket
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("/bob")))
                try eventually("all attempts were made") { daemon.log.contains("hostile: end") }
                let attempts = daemon.log.split(separator: "\n").filter { $0.hasPrefix("hostile: ") }.dropLast()
                #expect(attempts.count > 25, "\(daemon.log)")
                #expect(attempts.filter { !$0.contains(": refused (") } == [])
                for what in ["open \(daemon.configuration)", "list \(daemon.cache)", "connect \(daemon.socket)"] {
                    #expect(
                        attempts.contains { $0.hasPrefix("hostile: \(what): refused") && !$0.contains("ENOENT") },
                        "\(what)")
                }
            }
        }
    }
}
