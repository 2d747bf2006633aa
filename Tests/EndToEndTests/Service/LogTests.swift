import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Contents of the log.
    struct LogTests {
        @Test(arguments: ["trace", "debug", "info"])
        func `I11, F79: no log level logs environment variables`(level: String) throws {
            try withMachine { machine in
                let notify = try NotifySocket(machine)
                let daemon = Daemon(machine, "daemon")
                daemon.settings["log", "level"] = "\(level)"
                daemon.environment["NOTIFY_SOCKET"] = notify.path
                daemon.environment["UNRELATED_SECRET"] = "hush-hush-4711"
                try daemon.start()
                let client = try daemon.connect(loggedInAs: "alice")
                daemon.process?.signal(SIGHUP)
                try notify.wait(for: "RELOADING=1")
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                #expect(try daemon.stop() == 0)
                #expect(daemon.log.contains("message=stopping"))
                #expect(!daemon.log.contains("hush-hush-4711"))
                #expect(!daemon.log.contains("UNRELATED_SECRET"))
            }
        }

        @Test func `logins, purges and logouts are logged with uid, process and request, without user names`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "SESSION", "one") == .ok)
                #expect(try client.call("LOGIN", "alice", "SESSION", "two") == .ok)
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                let purge = try client.call("PURGE", "alice", "1", "bob")
                #expect(purge["images"]?.number == 1)
                let bytes = try #require(purge["bytes"]?.number)
                #expect(try client.call("PURGE", "alice")["users"]?.number == 1)
                #expect(try client.call("LOGOUT", "alice", "SESSION", "one")["sessions"]?.number == 1)
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                // A logout without effect is not logged.
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
                        line("purged", "bytes=\(bytes) images=1 profiles=1", request: 3),
                        line("purged", "bytes=0 images=0", request: 4),
                        line("\"logged out\"", "sessions=1", request: 5),
                        line("\"logged out\"", "bytes=0 images=0 sessions=0", request: 6),
                    ])
                for word in ["alice", "one", "two"] { #expect(!lines.contains { $0.contains(" \(word)") }) }
            }
        }

        @Test func `I8: frequent logins and logouts of a uid do not fill the log`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                for _ in 0..<100 {
                    #expect(try client.call("LOGIN", "alice") == .ok)
                    #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                }
                // At most 20 lines a minute, and the test may span two minutes.
                #expect(daemon.log.components(separatedBy: "message=\"logged").count - 1 <= 2 * 20)
            }
        }

        @Test func `opening and closing of a circuit breaker is logged with the origin and the account`() throws {
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
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                works.change { $0 = true }
                try eventually("a request succeeds") { try client.call("GET", "alice", "bob").code == nil }
                let common = "account=\(geteuid()) origin=default"
                let closed = "message=\"circuit breaker closed\" \(common) scope=account"
                try eventually("the closing is logged") { daemon.log.contains(closed) }
                let opened = "level=info message=\"circuit breaker opened\" \(common) retry_after_ms="
                #expect(daemon.log.contains(opened))
            }
        }

        private static let image =
            GatedOrigin.response(TestImage.gif("bob"))

        @Test func `failures are logged as text, not as Swift enumeration values`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("http://127.0.0.1:9/{profile}")
                    daemon.settings["log", "level"] = "debug"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                // Makes all logins unreadable.
                #expect(try client.call("LOGIN", "eve") == .ok)
                for file in daemon.loginFiles { truncate(file, 1) }
                try daemon.restart()
                _ = try daemon.connect().call("LOGOUT", "alice")
                #expect(daemon.log.contains("download failed"))
                // A Swift value would be logged like failed(\"loading a login\").
                #expect(!daemon.log.contains("(\\\""), "\(daemon.log)")
            }
        }
    }
}
