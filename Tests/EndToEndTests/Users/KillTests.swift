import Foundation
import Testing

extension EndToEnd {
    struct KillTests {
        /// Three in `make test`; `make kill-test ROUNDS=100` for more.
        private static let rounds = Int(ProcessInfo.processInfo.environment["THUMBCACHED_KILL_ROUNDS"] ?? "") ?? 3
        private static let users = 6
        private static let profiles = (0..<6).map { "friend-\($0)" }

        /// What the threads of the load share.
        private final class Board: Sendable {
            struct State: Sendable {
                var ledgers: [Ledger]
                /// Commands replied to in this round.
                var replies = 0
                /// The highest epoch of all receipts, over all rounds.
                var epoch: Int64 = 0
            }

            let serial = Serial()
            let state = Watched(State(ledgers: (0..<users).map { Ledger(user: "user-\($0)") }))
        }

        @Test
        func `I4, I5: killed under load and started again, round after round, no receipt and no PUT is contradicted`()
            throws
        {
            try withMachine { machine in
                let board = Board()
                let origin = try GatedOrigin.images { request in
                    Serial.image(String(request.path.dropFirst()), board.serial.next())
                }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let socket = daemon.socket
                var noise = SystemRandomNumberGenerator()
                var replies = 0
                for round in 1...Self.rounds {
                    board.state.change { $0.replies = 0 }
                    let seed = UInt64.random(in: 0 ... .max, using: &noise)
                    let load = ThreadGroup(Self.users) { index in
                        try Self.load(index, Noise(seed: "\(seed) \(index)"), socket, board)
                    }
                    let last = Int.random(in: 1...600, using: &noise)
                    #expect(board.state.wait(60) { $0.replies >= last })
                    daemon.kill()
                    try load.wait()
                    replies += board.state.current.replies
                    try daemon.start()
                    try Self.compare(daemon, board, round)
                }
                print(
                    "  \(Self.rounds) kills, \(replies) commands acknowledged between them, "
                        + "\(origin.requests.count) downloads"
                )

                let client = try daemon.connect()
                let receipt = try client.call("LOGOUT", "*")
                #expect(receipt["epoch"]?.number ?? 0 > board.state.current.epoch)
                try eventually("nothing is left on disk") { daemon.imageFiles.isEmpty }
                #expect(daemon.loginFiles.isEmpty)
            }
        }

        /// Sends commands for one user until the daemon dies.
        private static func load(_ index: Int, _ noise: Noise, _ socket: String, _ board: Board) throws {
            var noise = noise
            let client = try RESPClient(socket)
            while true {
                let ledger = board.state.current.ledgers[index]
                let profile = profiles[Int.random(in: 0..<profiles.count, using: &noise)]
                let command: Ledger.Command =
                    switch Int.random(in: 0..<100, using: &noise) {
                    case ..<35: .get(profile)
                    case ..<75: .put(profile, board.serial.next())
                    case ..<85: .login
                    case ..<91: .purge
                    case ..<95: .purgeProfile(profile)
                    default: .logout
                    }
                let epoch = board.state.change { state in
                    state.ledgers[index].underWay = command
                    return state.epoch
                }
                let reply: Reply
                do {
                    try client.send(words(command, ledger.user))
                    reply = try client.receive()
                } catch {
                    return  // killed
                }
                let holding = try after(command, ledger, reply, epoch)
                board.state.change { state in
                    state.ledgers[index].holding = holding
                    state.ledgers[index].underWay = nil
                    state.replies += 1
                    state.epoch = max(state.epoch, reply["epoch"]?.number ?? 0)
                }
            }
        }

        private static func words(_ command: Ledger.Command, _ user: String) -> [any Word] {
            switch command {
            case .login: ["LOGIN", user]
            case .logout: ["LOGOUT", user]
            case .purge: ["PURGE", user]
            case .purgeProfile(let profile): ["PURGE", user, "1", profile]
            case .put(let profile, let number): ["PUT", user, profile, Serial.image(profile, number)]
            case .get(let profile): ["GET", user, profile]
            }
        }

        /// What the cache holds after a command's reply; throws when the reply contradicts what it held before.
        private static func after(
            _ command: Ledger.Command, _ ledger: Ledger, _ reply: Reply, _ epoch: Int64
        ) throws -> Ledger.Holding {
            let before = ledger.holding
            var after = command.applied(to: before)
            var isRight: Bool
            switch command {
            case .login: isRight = reply == .ok
            case .put: isRight = before.isLoggedIn ? reply == .ok : reply.code == "NOLOGIN"
            case .logout, .purge, .purgeProfile:
                isRight = reply["users"] == .integer(before.isLoggedIn ? 1 : 0)
                if case .purgeProfile = command { isRight = reply["users"] != nil }
                if before.isLoggedIn { isRight = isRight && reply["epoch"]?.number ?? 0 > epoch }
            case .get(let profile):
                guard before.isLoggedIn else {
                    isRight = reply.code == "NOLOGIN"
                    break
                }
                let number = Serial.number(of: reply.bytes ?? [], profile)
                isRight = number != nil && (before.put[profile] == nil || before.put[profile] == number)
                if before.put[profile] == nil { after.downloaded[profile] = number }
            }
            guard isRight else { throw Failure("\(ledger.user): \(command) on \(before) got \(reply.brief)") }
            return after
        }

        /// Holds the daemon against the ledgers, then the ledgers go on from what is there.
        private static func compare(_ daemon: Daemon, _ board: Board, _ round: Int) throws {
            let client = try daemon.connect()
            let newest = board.serial.newest
            for index in 0..<users {
                let ledger = board.state.current.ledgers[index]
                var observed: [String: Reply] = [:]
                for profile in profiles { observed[profile] = try client.call("GET", ledger.user, profile, "CACHED") }
                if let contradiction = ledger.contradiction(to: observed, newest: newest) {
                    throw Failure("after kill \(round): \(contradiction)")
                }
                board.state.change { $0.ledgers[index].take(observed) }
            }
        }
    }
}
