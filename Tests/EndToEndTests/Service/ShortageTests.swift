import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// A system that has no descriptor or no thread left, while the daemon serves and when it starts.
    struct ShortageTests {
        private func limit(_ daemon: Daemon, to count: Int, _ machine: Machine) throws {
            // The soft one alone, so that it can be raised again by whoever is not root.
            let run = try machine.run(["prlimit", "--pid", "\(daemon.pid)", "--nofile=\(count):"])
            guard run.status == 0 else { throw Failure("prlimit: \(run.everything)") }
        }

        /// What the daemon's threads are called.
        private func threads(_ daemon: Daemon) throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/task").map { thread in
                String(decoding: try read("/proc/\(daemon.pid)/task/\(thread)/comm"), as: UTF8.self)
                    .trimmingCharacters(in: .newlines)
            }
        }

        @Test
        func
            `I9, F75: without a free descriptor log-ins and log-outs end in replies, hits go on, and a stop is a stop`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let clients = try (0..<32).map { _ in try daemon.connect() }
                #expect(try clients[0].call("LOGIN", "alice") == .ok)
                #expect(try clients[0].call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                // Not even for what it closes before.
                try limit(daemon, to: 3, machine)
                // More at once than there are threads for, and for longer than a runtime waits with another thread.
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
                            #expect(try client.receive() == .bulk(Picture.gif("bob")))
                            let logout = try client.receive()
                            #expect(logout["users"] != nil || logout.code == "IOERR", "\(logout.brief)")
                        }
                    }
                } while Date() < end
                try limit(daemon, to: 1_024, machine)
                // What is owed is done as soon as it can be.
                try eventually("all are logged out") {
                    try clients[0].call("USERS") == .array([.bulk(Array("alice".utf8))])
                }
                try limit(daemon, to: 3, machine)
                #expect(try daemon.stop() == 0)
            }
        }

        @Test func `F75: every thread of the daemon is one that it started itself, and has a name`() throws {
            try withMachine { machine in
                let notify = try NotifySocket(machine)
                let daemon = Daemon(machine, "daemon")
                daemon.environment["NOTIFY_SOCKET"] = notify.path
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
                // A thread that nobody names has the name of the one that made it: here the main thread's.
                let known = [
                    "thumbcached", "signals", "tasks", "sockets", "disk", "writing", "log-ins", "log-outs",
                    "downloads", "maintenance", "renditions",
                ]
                let names = try threads(daemon)
                #expect(names.allSatisfy(known.contains), "\(names.sorted())")
                #expect(names.filter { $0 == "thumbcached" }.count == 1, "\(names.sorted())")
            }
        }

        @Test(
            .enabled(if: StoreFaultTests.canTrace, "strace may not trace here"),
            arguments: [
                ("eventfd2", "no event loop could be started"), ("epoll_create1", "no event loop could be started"),
                ("epoll_ctl", "no event loop could be started"),
            ], ["EMFILE", "ENOMEM"])
        func `F15: a start without the descriptors or the memory for it ends with status 1 and a reason`(
            call: (name: String, reason: String), error: String
        ) throws {
            try withMachine { machine in
                let daemon = try failedStart(machine, failing: call.name, error, when: 1)
                #expect(daemon.log.contains(call.reason), "\(daemon.log)")
            }
        }

        /// The main thread starts the process that starts helpers, and then all other threads.
        @Test(
            .enabled(if: StoreFaultTests.canTrace, "strace may not trace here"))
        func `F16: a start that gets any number of threads but not all it needs ends with status 1 and says so`()
            throws
        {
            try withMachine { machine in
                let running = try machine.daemon("running")
                let count = try threads(running).count
                for when in 1...count {
                    let daemon = try failedStart(machine, failing: "clone3", "EAGAIN", when: when)
                    let what = when == 1 ? "start /proc/self/exe (at the limit" : "no thread could be started for "
                    #expect(daemon.log.contains(what), "\(daemon.log)")
                    #expect(daemon.log.contains("raise TasksMax="), "\(daemon.log)")
                }
            }
        }

        /// A daemon that ended with status 1 and one line of why, since one of its system calls failed.
        private func failedStart(
            _ machine: Machine, failing call: String, _ error: String, when: Int
        ) throws -> Daemon {
            let daemon = Daemon(machine, "daemon-\(machine.takeNumber())")
            daemon.wrapper = [
                "strace", "-f", "-o", "/dev/null", "-e", "trace=\(call)",
                "-e", "inject=\(call):error=\(error):when=\(when)",
            ]
            try daemon.launch()
            #expect(try daemon.process?.waitForEnd() == 1, "\(call) \(error) \(when): \(daemon.log)")
            let reasons = daemon.log.split(separator: "\n").filter { $0.hasPrefix("thumbcached: ") }
            #expect(reasons.count == 1, "\(daemon.log)")
            return daemon
        }
    }
}
