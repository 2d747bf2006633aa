import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Restarts under load, as during an upgrade: the new process inherits the listening socket.
    struct RestartTests {
        private static let restarts = 10

        @Test func `F72: at restarts under load, requests without an OK have no effect, and others are done`() throws {
            try withMachine { machine in
                let path = machine.path("inherited")
                let listener = try listenUnix(path)
                defer { close(listener) }
                let daemon = Daemon(machine, "daemon")
                try daemon.launch(listener: listener)
                #expect(try RESPClient(path).call("LOGIN", "alice") == .ok)

                let tally = Watched(Tally())
                let isOver = Watched(false)
                let load = ThreadGroup(6) { index in
                    var client = PipeliningClient(name: "\(index)", depth: index < 3 ? 1 : 16)
                    while !isOver.current { try client.use(RESPClient(path), tally, until: isOver) }
                }
                for _ in 0..<Self.restarts {
                    let before = tally.current.done.count
                    guard tally.wait(60, until: { $0.done.count > before + 200 }) else { break }
                    #expect(try daemon.stop() == 0)
                    try daemon.launch(listener: listener)
                }
                isOver.change { $0 = true }
                try load.wait()

                let seen = tally.current
                #expect(seen.rejected.count + seen.unanswered.count > 0, "no restart interrupted a request")
                let client = try RESPClient(path)
                for profile in seen.done {
                    let held = try client.call("GET", "alice", profile, "CACHED")
                    guard held == .bulk(TestImage.gif(profile)) else { throw Failure("\(profile): \(held.brief)") }
                }
                for profile in seen.rejected + seen.unanswered {
                    let held = try client.call("GET", "alice", profile, "CACHED")
                    guard held == .null else { throw Failure("\(profile) is stored without an OK") }
                }
                #expect(try daemon.stop() == 0)
            }
        }
    }
}

/// Profiles of all PUTs, by outcome.
private struct Tally: Sendable {
    var done: [String] = []
    /// Answered with SHUTTINGDOWN.
    var rejected: [String] = []
    /// The connection was closed without a reply.
    var unanswered: [String] = []
}

/// A client that pipelines `depth` requests until the daemon closes the connection, and then connects again. A failure
/// to send or to read fails the test.
private struct PipeliningClient {
    let name: String
    let depth: Int
    private var number = 0

    init(name: String, depth: Int) {
        self.name = name
        self.depth = depth
    }

    mutating func use(_ client: RESPClient, _ tally: Watched<Tally>, until isOver: Watched<Bool>) throws {
        var waiting: [String] = []
        var isStopping = false
        while true {
            while waiting.count < depth && !isOver.current {
                number += 1
                let profile = "\(name) \(number)"
                try client.send("PUT", "alice", profile, TestImage.gif(profile))
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
                isStopping = true
                tally.change { $0.rejected.append(profile) }
            } else {
                guard reply == .ok else { throw Failure("PUT: \(reply.brief)") }
                guard !isStopping else { throw Failure("a PUT succeeded after a rejected one") }
                tally.change { $0.done.append(profile) }
            }
        }
    }
}
