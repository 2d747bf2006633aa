import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// The daemon is restarted under those who keep their connections, as at an upgrade: the socket stays, the process
    /// is another.
    struct RestartTests {
        private static let restarts = 10

        @Test func `F72: at restarts under load each request is answered, or the end says that it is not done`()
            throws
        {
            try withMachine { machine in
                let path = machine.path("inherited")
                let listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
                defer { close(listener) }
                #expect(withUnixAddress(path) { bind(listener, $0, $1) } == 0)
                #expect(listen(listener, 64) == 0)
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["sh", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\""]
                try daemon.launch(passing: [listener])
                #expect(try RESPClient(path).call("LOGIN", "alice") == .ok)

                let tally = Watched(Tally())
                let isOver = Watched(false)
                let load = ThreadGroup(6) { index in
                    var client = KeptClient(name: "\(index)", ahead: index < 3 ? 1 : 16)
                    while !isOver.current { try client.use(RESPClient(path), tally, until: isOver) }
                }
                for _ in 0..<Self.restarts {
                    let before = tally.current.done.count
                    guard tally.wait(60, until: { $0.done.count > before + 200 }) else { break }
                    #expect(try daemon.stop() == 0)
                    try daemon.launch(passing: [listener])
                }
                isOver.change { $0 = true }
                try load.wait()

                let seen = tally.current
                #expect(seen.refused.count + seen.unanswered.count > 0, "no restart met a request")
                let client = try RESPClient(path)
                for profile in seen.done {
                    let held = try client.call("GET", "alice", profile, "CACHED")
                    guard held == .bulk(Picture.gif(profile)) else { throw Failure("\(profile): \(held.brief)") }
                }
                for profile in seen.refused + seen.unanswered {
                    let held = try client.call("GET", "alice", profile, "CACHED")
                    guard held == .null else { throw Failure("\(profile) was not answered OK, yet is held") }
                }
                #expect(try daemon.stop() == 0)
            }
        }
    }
}

/// What became of the PUTs of all clients, by their profiles.
private struct Tally: Sendable {
    var done: [String] = []
    /// Told SHUTTINGDOWN.
    var refused: [String] = []
    /// In place of an answer the end came.
    var unanswered: [String] = []
}

/// A client that keeps its connection, and so many requests on their way, until it sees the end; then it connects anew.
/// That a request cannot be sent, or that reading fails, is an error of the test.
private struct KeptClient {
    let name: String
    let ahead: Int
    private var number = 0

    init(name: String, ahead: Int) {
        self.name = name
        self.ahead = ahead
    }

    mutating func use(_ client: RESPClient, _ tally: Watched<Tally>, until isOver: Watched<Bool>) throws {
        var waiting: [String] = []
        var hasStopped = false
        while true {
            while waiting.count < ahead && !isOver.current {
                number += 1
                let profile = "\(name) \(number)"
                try client.send("PUT", "alice", profile, Picture.gif(profile))
                waiting.append(profile)
            }
            if waiting.isEmpty { return }
            let reply: Reply
            do {
                reply = try client.receive()
            } catch let failure as Failure where failure.description.contains("instead of replying") {
                return tally.change { $0.unanswered += waiting }
            }
            let profile = waiting.removeFirst()
            if reply.code == "SHUTTINGDOWN" {
                hasStopped = true
                tally.change { $0.refused.append(profile) }
            } else {
                guard reply == .ok else { throw Failure("PUT: \(reply.brief)") }
                guard !hasStopped else { throw Failure("a PUT was done behind one that was refused") }
                tally.change { $0.done.append(profile) }
            }
        }
    }
}
