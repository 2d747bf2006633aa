import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Lack of descriptors and threads, at the start and later.
    struct ShortageTests {
        /// The names of the daemon's threads.
        private func threads(_ daemon: Daemon) throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/task").map { thread in
                try readText("/proc/\(daemon.pid)/task/\(thread)/comm")
                    .trimmingCharacters(in: .newlines)
            }
        }

        @Test func `I9, F75: without free descriptors, logins and logouts get replies, and hits are served`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let clients = try (0..<32).map { _ in try daemon.connect() }
                #expect(try clients[0].call("LOGIN", "alice") == .ok)
                #expect(try clients[0].call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                // Below the descriptors in use: closing some does not help.
                try daemon.limitDescriptors(to: 3)
                // More requests than threads, for long enough that a thread pool would add threads.
                let end = Date(timeIntervalSinceNow: 3)
                repeat {
                    for (number, client) in clients.enumerated() {
                        for _ in 0..<20 {
                            try client.send("LOGIN", "user \(number)")
                            try client.send("GET", "alice", "bob")
                            try client.send("LOGOUT", "user \(number)")
                        }
                    }
                    for client in clients {
                        for _ in 0..<20 {
                            let login = try client.receive()
                            #expect(login == .ok || login.code == "IOERR", "\(login.brief)")
                            #expect(try client.receive() == .bulk(TestImage.gif("bob")))
                            let logout = try client.receive()
                            #expect(logout["users"] != nil || logout.code == "IOERR", "\(logout.brief)")
                        }
                    }
                } while Date() < end
                try daemon.limitDescriptors(to: 1_024)
                // The daemon retries failed logouts.
                try eventually("all are logged out") {
                    try clients[0].call("USERS") == .list("alice")
                }
                try daemon.limitDescriptors(to: 3)
                #expect(try daemon.stop() == 0)
            }
        }

        @Test func `F75: all threads of the daemon have known names`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let notify = try daemon.openNotifySocket()
                daemon.environment["WATCHDOG_USEC"] = "200000"
                try daemon.start()
                let clients = try (0..<16).map { _ in try daemon.connect() }
                for (number, client) in clients.enumerated() {
                    for _ in 0..<8 {
                        try client.send("LOGIN", "user \(number)")
                        try client.send("PURGE", "user \(number)")
                        try client.send("LOGOUT", "user \(number)")
                    }
                }
                for client in clients { for _ in 0..<24 { _ = try client.receive() } }
                daemon.process?.signal(SIGHUP)
                try notify.wait(for: "RELOADING=1")
                try notify.wait(for: "WATCHDOG=1")
                // A thread without a name inherits that of the thread that started it, such as the main thread's.
                let known = [
                    "thumbcached", "signals", "tasks", "images", "writes", "logins", "invalidations", "downloads",
                    "maintenance", "renditions",
                ]
                let names = try threads(daemon)
                #expect(names.allSatisfy { known.contains($0) || $0.hasPrefix("event loop ") }, "\(names.sorted())")
                #expect(names.filter { $0 == "thumbcached" }.count == 1, "\(names.sorted())")
            }
        }

        @Test(
            .enabled(if: StoreFaultTests.canTrace, "strace is not permitted"),
            arguments: [
                ("eventfd2", "create an event loop"), ("epoll_create1", "create an event loop"),
                ("epoll_ctl", "create an event loop"),
            ], ["EMFILE", "ENOMEM"])
        func `F15: a start without descriptors or memory ends with status 1 and a reason`(
            call: (name: String, reason: String), error: String
        ) throws {
            try withMachine { machine in
                let daemon = try failedStart(machine, failing: call.name, error, when: 1)
                #expect(daemon.log.contains(call.reason), "\(daemon.log)")
            }
        }

        /// The main thread starts the fork server and then all other threads.
        @Test(.enabled(if: StoreFaultTests.canTrace, "strace is not permitted"))
        func `F16: if any thread cannot be started, the start ends with status 1 and a reason`() throws {
            try withMachine { machine in
                let running = try machine.daemon("running")
                let count = try threads(running).count
                for when in 1...count {
                    let daemon = try failedStart(machine, failing: "clone3", "EAGAIN", when: when)
                    let what = when == 1 ? "start /proc/self/exe (at the limit" : "start a thread for "
                    #expect(daemon.log.contains(what), "\(daemon.log)")
                    #expect(daemon.log.contains("raise TasksMax="), "\(daemon.log)")
                }
            }
        }

        /// Starts a daemon with a failing system call, and expects status 1 and a reason of one line.
        private func failedStart(
            _ machine: Machine, failing call: String, _ error: String, when: Int
        ) throws -> Daemon {
            let daemon = Daemon(machine, "daemon-\(machine.nextNumber())")
            daemon.wrapper = [
                "strace", "-f", "-o", "/dev/null", "-e", "trace=\(call)",
                "-e", "inject=\(call):error=\(error):when=\(when)",
            ]
            try daemon.launch()
            #expect(try daemon.process?.waitForExit() == 1, "\(call) \(error) \(when): \(daemon.log)")
            let reasons = daemon.log.split(separator: "\n").filter { $0.hasPrefix("thumbcached: ") }
            #expect(reasons.count == 1, "\(daemon.log)")
            return daemon
        }
    }
}
