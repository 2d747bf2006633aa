import Foundation
import Testing

extension EndToEnd.Histories {
    /// Random commands of concurrent clients, with a faulty origin and kills. The replies must be consistent with a
    /// sequential order of the commands, and no image may be served after the purge or logout that removed it.
    struct HistoryTests {
        /// The number of histories: 1 in `make test`, more with `make history-test ROUNDS=100`.
        private static let histories = Int(ProcessInfo.processInfo.environment["THUMBCACHED_HISTORIES"] ?? "") ?? 1
        /// Kills in one history.
        private static let kills = 3
        private static let clients = 6
        private static let users = ["alice", "carol"]
        private static let profiles = ["bob", "dave", "eve"]

        /// State that all threads share.
        private final class Recorder: Sendable {
            let serial = Serial()
            let history = Watched(History())

            func now() -> Int { history.change { $0.tick() } }

            func record(_ user: String?, _ command: History.Command, began: Int, _ outcome: History.Outcome) {
                history.change { history in
                    let ended = outcome == .unknown ? Int.max : history.tick()
                    history.events.append(
                        .init(user: user, command: command, outcome: outcome, began: began, ended: ended))
                }
            }

            /// Ends the commands without a reply: each was done before the restart, or is never done.
            func endUnansweredCommands() {
                history.change { history in
                    let now = history.tick()
                    for index in history.events.indices where history.events[index].ended == .max {
                        history.events[index].ended = now
                    }
                }
            }

            /// The origin's response: a storable image, an unstorable one, or a failure.
            func answer(_ request: GatedOrigin.Request) -> [GatedOrigin.Step] {
                var noise = Noise(seed: "answer \(request.number)")
                let path = String(request.path.dropFirst())
                let profile = String(path.split(separator: "/").last ?? "")
                let kind = Int.random(in: 0..<100, using: &noise)
                let number = history.change { history in
                    let number = serial.next()
                    history.downloads[number] = .init(path: path, began: history.tick(), isStorable: !(60..<75 ~= kind))
                    return number
                }
                let image = Serial.image(profile, number)
                switch kind {
                case ..<60: return [.send(GatedOrigin.response(image))]
                case ..<75: return [.send(GatedOrigin.response(image, headers: ["Cache-Control: no-store"]))]
                case ..<85: return [.send(GatedOrigin.response([], status: "404 Not Found"))]
                case ..<93: return [.send(GatedOrigin.response(Array("<html>".utf8)))]
                default: return [.send(GatedOrigin.response(image, length: image.count + 1)), .close]
                }
            }
        }

        /// Without a memory tier, images are read from files that stay open.
        @Test(arguments: ["64MiB", "0"])
        func `I2 to I5, I7, F41: the replies to concurrent clients are linearizable, with kills`(
            memoryTier: String
        ) throws {
            for _ in 0..<Self.histories {
                try withMachine { try Self.checkHistory(on: $0, memoryTier: memoryTier) }
            }
        }

        private static func checkHistory(on machine: Machine, memoryTier: String) throws {
            let recorder = Recorder()
            let origin = try GatedOrigin { recorder.answer($0) }
            defer { origin.end() }
            let daemon = try machine.daemon { daemon in
                daemon.settings.setOrigin("\(origin.url)/{user}/{profile}")
                daemon.settings["memory", "tier"] = .string(memoryTier)
                daemon.settings["", "threads"] = 2
            }
            let socket = daemon.socket
            let seed = UInt64.random(in: 0 ... .max)
            var noise = Noise(seed: "\(seed)")
            for round in 1...kills {
                let load = ThreadGroup(clients) { index in
                    try run(Noise(seed: "\(seed) \(round) \(index)"), RESPClient(socket), recorder)
                }
                let last = recorder.history.current.events.count + Int.random(in: 100...600, using: &noise)
                #expect(recorder.history.wait(60) { $0.events.count >= last })
                let killed = recorder.now()
                daemon.kill()
                try load.wait()
                try daemon.start()
                recorder.record(nil, .kill, began: killed, .ok)
                recorder.endUnansweredCommands()
            }
            // The final state is part of the history.
            let client = try daemon.connect()
            for user in users {
                for profile in profiles { try send(.getCached(profile), user, client, recorder) }
            }
            let history = recorder.history.current
            let seen = Dictionary(grouping: history.events) { "\($0.outcome)".prefix { $0 != "(" } }
            print("  seed \(seed): \(seen.mapValues(\.count)), \(origin.requests.count) downloads")
            for outcome in ["ok", "receipt", "image", "missing", "notLoggedIn"] {
                #expect(seen[outcome[...]]?.isEmpty == false, "no outcome \(outcome)")
            }
            if let contradiction = HistoryChecker.contradiction(in: history) {
                let file = "\(FileManager.default.temporaryDirectory.path)/thumbcached-history-\(seed).json"
                try write(Array(JSONEncoder().encode(history)), to: file)
                Issue.record("seed \(seed), history in \(file): \(contradiction)")
            }
            #expect(try client.call("LOGOUT", "*")["users"] != nil)
            // The sweep after the start removes files of interrupted commands.
            try eventually("no file is left on disk") { daemon.imageFiles.isEmpty && daemon.loginFiles.isEmpty }
        }

        /// Sends random commands until the daemon is killed.
        private static func run(_ noise: Noise, _ client: RESPClient, _ recorder: Recorder) throws {
            var noise = noise
            var isAnswered = true
            while isAnswered {
                let user = users[Int.random(in: 0..<users.count, using: &noise)]
                let profile = profiles[Int.random(in: 0..<profiles.count, using: &noise)]
                let command: History.Command =
                    switch Int.random(in: 0..<100, using: &noise) {
                    case ..<25: .get(profile)
                    case ..<50: .getCached(profile)
                    case ..<70: .put(profile, recorder.serial.next())
                    case ..<83: .login
                    case ..<89: .purge
                    case ..<94: .purgeProfile(profile)
                    default: .logout
                    }
                // A quarter of the logouts and purges are for all users.
                let isForAll = (command == .logout || command == .purge) && Int.random(in: 0..<4, using: &noise) == 0
                isAnswered = try send(command, isForAll ? nil : user, client, recorder)
            }
        }

        /// Sends a command and records its outcome. Returns false if the daemon was killed before the reply.
        @discardableResult
        private static func send(
            _ command: History.Command, _ user: String?, _ client: RESPClient, _ recorder: Recorder
        ) throws -> Bool {
            let began = recorder.now()
            let reply: Reply
            do {
                try client.send(words(command, user ?? "*"))
                reply = try client.receive()
            } catch {
                recorder.record(user, command, began: began, .unknown)
                return false
            }
            guard let outcome = outcome(of: reply, to: command) else {
                throw Failure("\(command) of \(user ?? "*"): \(reply.brief)")
            }
            recorder.record(user, command, began: began, outcome)
            return true
        }

        private static func words(_ command: History.Command, _ user: String) -> [any Word] {
            switch command {
            case .login: ["LOGIN", user]
            case .logout: ["LOGOUT", user]
            case .purge: ["PURGE", user]
            case .purgeProfile(let profile): ["PURGE", user, "1", profile]
            case .put(let profile, let number): ["PUT", user, profile, Serial.image(profile, number)]
            case .get(let profile): ["GET", user, profile]
            case .getCached(let profile): ["GET", user, profile, "CACHED"]
            case .kill: []
            }
        }

        /// Nil for an invalid reply, such as unknown bytes.
        private static func outcome(of reply: Reply, to command: History.Command) -> History.Outcome? {
            switch reply {
            case .ok: return .ok
            case .null: return .missing
            case .bulk(let bytes): return command.profile.flatMap { Serial.number(of: bytes, $0) }.map { .image($0) }
            case .error("NOLOGIN", _): return .notLoggedIn
            case .error("CANCELLED", _): return .cancelled
            case .error("ORIGIN", _), .error("NOTFOUND", _), .error("BADIMAGE", _), .error("BUSY", _): return .failed
            default:
                guard let users = reply["users"]?.number, let epoch = reply["epoch"]?.number else { return nil }
                return .receipt(users: users, epoch: epoch)
            }
        }
    }
}
