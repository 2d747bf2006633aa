import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// What the log says, and what it never says.
    struct LogTests {
        @Test(arguments: ["trace", "debug", "info"])
        func `I11, F79: nothing of the environment is in the log, at whatever level`(level: String) throws {
            try withMachine { machine in
                let notify = try NotifySocket(machine)
                let daemon = Daemon(machine, "daemon")
                daemon.settings["log", "level"] = "\(level)"
                daemon.environment["NOTIFY_SOCKET"] = notify.path
                daemon.environment["SOMEBODYS_SECRET"] = "hush-hush-4711"
                try daemon.start()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                daemon.process?.signal(SIGHUP)
                try notify.wait(for: "RELOADING=1")
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                #expect(try daemon.stop() == 0)
                #expect(daemon.log.contains("message=stopping"))
                #expect(!daemon.log.contains("hush-hush-4711"))
                #expect(!daemon.log.contains("SOMEBODYS_SECRET"))
            }
        }

        @Test func `who changes what is told by uid, process and request, without a name`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "SESSION", "one") == .ok)
                #expect(try client.call("LOGIN", "alice", "SESSION", "two") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                let purge = try client.call("PURGE", "alice", "1", "bob")
                #expect(purge["images"]?.number == 1)
                let held = try #require(purge["bytes"]?.number)
                #expect(try client.call("PURGE", "alice")["users"]?.number == 1)
                #expect(try client.call("LOGOUT", "alice", "SESSION", "one")["sessions"]?.number == 1)
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                // Nobody is logged in: there is nothing to tell.
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 0)
                let lines = daemon.log.split(separator: "\n").compactMap { line in
                    line.range(of: "level=info").map { line[$0.lowerBound...] }
                }
                let id = try #require(try client.call("CLIENT", "ID").number)
                func line(_ message: String, _ details: String, request number: Int) -> String {
                    let own = ["pid=\(getpid())", "request=\(id).\(number)", "uid=\(geteuid())"]
                    let fields = (details.split(separator: " ").map(String.init) + own).sorted()
                    return (["level=info", "message=\(message)"] + fields).joined(separator: " ")
                }
                #expect(lines.first?.hasPrefix("level=info message=\"configuration read\" file=") == true)
                #expect(
                    lines.dropFirst().map(String.init) == [
                        line("\"logged in\"", "sessions=1", request: 1),
                        line("\"logged in\"", "sessions=2", request: 2),
                        line("purged", "bytes=\(held) images=1 profiles=1", request: 3),
                        line("purged", "bytes=0 images=0", request: 4),
                        line("\"logged out\"", "sessions=1", request: 5),
                        line("\"logged out\"", "bytes=0 images=0 sessions=0", request: 6),
                    ])
                for word in ["alice", "one", "two"] { #expect(!lines.contains { $0.contains(" \(word)") }) }
            }
        }

        @Test func `I8: a uid that logs in and out all the time fills no log`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                for _ in 0..<100 {
                    #expect(try client.call("LOGIN", "alice") == .ok)
                    #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                }
                // Twenty in a minute; the clock may have come to another one meanwhile.
                #expect(daemon.log.components(separatedBy: "message=\"logged").count - 1 <= 2 * 20)
            }
        }

        @Test func `a circuit breaker that opens or closes is told, with its origin and the uid that met it`() throws {
            try withMachine { machine in
                let works = Watched(false)
                let origin = try GatedOrigin { _ in
                    [.send(works.current ? Self.image : Array("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".utf8))]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "failures"] = 1
                    daemon.settings["origins.default", "backoff"] = "1ms"
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                works.change { $0 = true }
                try eventually("the origin is asked again") { try client.call("GET", "alice", "bob").code == nil }
                let uid = geteuid()
                let closed = "message=\"a circuit breaker closed\" for=\"this uid\" origin=default uid=\(uid)"
                try eventually("both are told") { daemon.log.contains(closed) }
                #expect(daemon.log.contains("level=info message=\"a circuit breaker opened\" for=\"this uid\" ms="))
            }
        }

        private static let image =
            Array("HTTP/1.1 200 OK\r\ncontent-length: \(Picture.gif("bob").count)\r\n\r\n".utf8) + Picture.gif("bob")

        @Test func `what failed is told in words, not as the program writes its values`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("http://127.0.0.1:9/{profile}")
                    daemon.settings["log", "level"] = "debug"
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                // No log-in can be read any more.
                #expect(try client.call("LOGIN", "eve") == .ok)
                for file in daemon.loginFiles { truncate(file, 1) }
                try daemon.restart()
                _ = try daemon.connect().call("LOGOUT", "alice")
                #expect(daemon.log.contains("download failed"))
                // An enumeration's value, as it was once logged: failed(\"loading a log-in\").
                #expect(!daemon.log.contains("(\\\""), "\(daemon.log)")
            }
        }
    }
}
