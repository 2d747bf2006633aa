import Glibc
import Testing

extension EndToEnd.Clients {
    /// One uid that tries to exhaust the daemon's memory.
    struct MemoryFloodTests {
        /// A connection that sends all of a large request but its last 100 bytes.
        private final class PartialSender {
            let client: RESPClient
            private var sent = 0
            private(set) var isDone = false
            /// Whether the daemon has replied, which can only be BUSY, or closed the connection.
            private(set) var isRejected = false

            init(_ daemon: Daemon) throws {
                client = try daemon.connect()
                guard fcntl(client.descriptor, F_SETFL, O_NONBLOCK) == 0 else { throw Failure(systemCall: "fcntl") }
            }

            /// Sends what the socket accepts without blocking.
            func send(_ frame: [UInt8]) throws {
                var reply: UInt8 = 0
                if recv(client.descriptor, &reply, 1, CInt(MSG_PEEK | MSG_DONTWAIT)) > 0 { isRejected = true }
                while !isRejected && sent < frame.count - 100 {
                    let count = frame[sent..<(frame.count - 100)].withUnsafeBytes {
                        Glibc.send(client.descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
                    }
                    if count < 0 && errno == EAGAIN { return }
                    if count < 0 && (errno == EPIPE || errno == ECONNRESET) {
                        isRejected = true
                        return
                    }
                    guard count > 0 else { throw Failure(systemCall: "send to the daemon") }
                    sent += count
                }
                isDone = !isRejected
            }
        }

        @Test func `I8, F16, F20, F53: unfinished requests of a uid are bounded and do not affect others`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers { $0.settings["limits", "stall"] = "10m" }
                let own = try daemon.connect(loggedInAs: "alice")
                let before = try daemon.residentMemory()
                let frame = RESPClient.frame(["PUT", "alice", "bob", TestImage.gif("bob", size: 5 << 20)])
                var senders: [PartialSender] = []
                for _ in 0..<100 { senders.append(try PartialSender(daemon)) }
                // The budget of 64 MiB has room for 13 requests.
                try eventually("the budget is used up") {
                    for sender in senders { try sender.send(frame) }
                    return senders.count { $0.isDone } == 13 && senders.count { $0.isRejected } == 87
                }
                let held = Int(try daemon.info("held_bytes", own) ?? "") ?? 0
                #expect(held <= 64 << 20 && held > 60 << 20)
                // All requests together would need 500 MB.
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

                for sender in senders { sender.client.end() }
                // The memory of logged-in users remains.
                try eventually("the memory is released") {
                    try Int(daemon.info("held_bytes", own) ?? "").map { $0 < 20_000 } ?? false
                }
            }
        }
    }
}
