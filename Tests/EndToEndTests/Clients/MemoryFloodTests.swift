import Glibc
import Testing

extension EndToEnd {
    /// One uid that has the daemon hold as much as it can, while others go on.
    struct MemoryFloodTests {
        /// A connection that leaves a large request unfinished.
        private final class Leaver {
            let client: RESPClient
            private var sent = 0
            /// All but the last bytes is sent.
            private(set) var isDone = false
            /// It was told BUSY: nothing else is ever said to it.
            private(set) var isRefused = false

            init(_ daemon: Daemon) throws {
                client = try daemon.connect()
                guard fcntl(client.descriptor, F_SETFL, O_NONBLOCK) == 0 else { throw Failure(systemCall: "fcntl") }
            }

            /// Sends as much as is taken now, and never the last bytes.
            func send(_ frame: [UInt8]) throws {
                var reply: UInt8 = 0
                if recv(client.descriptor, &reply, 1, CInt(MSG_PEEK | MSG_DONTWAIT)) > 0 { isRefused = true }
                while !isRefused && sent < frame.count - 100 {
                    let count = frame[sent..<(frame.count - 100)].withUnsafeBytes {
                        Glibc.send(client.descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
                    }
                    if count < 0 && errno == EAGAIN { return }
                    if count < 0 && (errno == EPIPE || errno == ECONNRESET) {
                        isRefused = true
                        return
                    }
                    guard count > 0 else { throw Failure(systemCall: "send to the daemon") }
                    sent += count
                }
                isDone = !isRefused
            }
        }

        @Test
        func
            `I8, F16, F20, F53: requests that a uid leaves unfinished cost its budget and no more; others pass`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers { $0.settings["limits", "stall"] = "10m" }
                let own = try daemon.connect()
                #expect(try own.call("LOGIN", "alice") == .ok)
                let before = try daemon.residentMemory()
                let frame = RESPClient.frame(["PUT", "alice", "bob", Picture.gif("bob", size: 5 << 20)])
                var leavers: [Leaver] = []
                for _ in 0..<100 { leavers.append(try Leaver(daemon)) }
                // 13 have room for all of it; the others are refused.
                try eventually("the budget is used up") {
                    for leaver in leavers { try leaver.send(frame) }
                    return leavers.count { $0.isDone } == 13 && leavers.count { $0.isRefused } == 87
                }
                let held = Int(try daemon.info("held_bytes", own) ?? "") ?? 0
                #expect(held <= 64 << 20 && held > 60 << 20)
                // All of it would have been 500 MB.
                let more = try daemon.residentMemory() - before
                print("  F20: \(more >> 20) MiB more for 100 unfinished requests of 5 MiB")
                #expect(more < 160 << 20)

                func cli(_ account: Account, _ words: String...) throws -> String {
                    try machine.run(account.running(["redis-cli", "-s", daemon.socket] + words)).text
                }
                #expect(try cli(Account(4_001), "LOGIN", "carol") == "OK\n")
                #expect(try cli(Account(4_001), "GET", "carol", "bob", "CACHED") == "\n")
                #expect(try own.call("LOGIN", "carol") == .ok)
                #expect(try own.call("LOGOUT", "carol")["users"]?.number == 1)
                #expect(try daemon.connect().call("PURGE", "alice")["users"]?.number == 1)
                #expect(try cli(.root, "LOGOUT", "*", "UID", "\(getuid())").hasPrefix("users\n1\n"))

                for leaver in leavers { leaver.client.end() }
                // What is left is what was there before: users.
                try eventually("all is given back") {
                    try Int(daemon.info("held_bytes", own) ?? "").map { $0 < 20_000 } ?? false
                }
            }
        }
    }
}
