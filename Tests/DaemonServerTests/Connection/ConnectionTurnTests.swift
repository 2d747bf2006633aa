import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import DaemonServer

/// Turns of one account's connections when their commands exceed a round of the loop (F66).
@Suite struct ConnectionTurnTests {
    private struct Scene {
        var peers: [BlockingPeer] = []
        /// Numbers of the connections, in the order in which their commands ran.
        var log: [Int] = []
        var left: [Int]
    }

    @Test func `a reply is sent after the other ready sockets are read`() async throws {
        let first = NIOLockedValueBox<BlockingPeer?>(nil)
        let hasRun = NIOLockedValueBox(false)
        let hadReply = NIOLockedValueBox<Bool?>(nil)
        let early: ServerInfo.Section = { _, _ in
            hasRun.withLockedValue { $0 = true }
            return []
        }
        let late: ServerInfo.Section = { _, _ in
            let isSecond = hasRun.withLockedValue { $0 }
            hadReply.withLockedValue { $0 = isSecond ? first.withLockedValue { $0?.hasArrived } : true }
            return []
        }
        try await TestDaemon.run {
            $0.info = ServerInfo(["early": early, "late": late])
        } _: { daemon in
            let peers = try (0..<2).map { _ in try BlockingPeer(daemon.path) }
            defer { for peer in peers { peer.end() } }
            for peer in peers { #expect(peer.exchange(["PING"]) == "+PONG\r\n") }
            first.withLockedValue { $0 = peers[0] }
            var wasPostponed = false
            // If the first request takes the account's whole time in the round, its reply is sent first.
            for _ in 0..<100 where !wasPostponed {
                hasRun.withLockedValue { $0 = false }
                hadReply.withLockedValue { $0 = nil }
                // One round reads both requests.
                let gate = Gate()
                daemon.onEventLoop { gate.pass() }
                await gate.reached()
                #expect(peers[0].send(["INFO", "early"]) == 0)
                #expect(peers[1].send(["INFO", "late"]) == 0)
                gate.open()
                try await eventually { hadReply.withLockedValue { $0 } != nil }
                wasPostponed = hadReply.withLockedValue { $0 } == false
                for peer in peers { #expect(!peer.receive().isEmpty) }
            }
            #expect(wasPostponed)
        }
    }

    /// Each command sends the next request of its connection before its own reply, so that the socket is ready again
    /// before the loop polls other sockets.
    @Test(arguments: [16, 40])
    func `F66: connections of one account are served in turn, even if each is ready again at once`(
        _ connections: Int
    ) async throws {
        let commands = 10
        let scene = NIOLockedValueBox(Scene(left: Array(repeating: commands, count: connections)))
        let work: ServerInfo.Section = { peer, _ in
            let number = Int(peer.pid)
            scene.withLockedValue { scene in
                scene.log.append(number)
                scene.left[number] -= 1
                if scene.left[number] > 0 { #expect(scene.peers[number].send(["INFO", "work"]) == 0) }
            }
            // Twelve commands exhaust a round.
            let end = NIODeadline.now() + .nanoseconds(LoopAccount.soleQuantum / 12)
            while .now() < end {}
            return []
        }
        try await TestDaemon.run {
            $0.info = ServerInfo(["work": work])
        } _: { daemon in
            for number in 0..<connections {
                daemon.expect(Peer(uid: TestDaemon.defaultPeer.uid, pid: CInt(number), isAdmin: false))
                let peer = try BlockingPeer(daemon.path)
                #expect(peer.exchange(["PING"]) == "+PONG\r\n")
                scene.withLockedValue { $0.peers.append(peer) }
            }
            let peers = scene.withLockedValue { $0.peers }
            defer { for peer in peers { peer.end() } }
            // All requests are in the socket buffers before the first is served.
            let gate = Gate()
            daemon.onEventLoop { gate.pass() }
            await gate.reached()
            for peer in peers { #expect(peer.send(["INFO", "work"]) == 0) }
            gate.open()
            try await eventually { scene.withLockedValue { $0.log.count } == connections * commands }
            var served = Array(repeating: 0, count: connections)
            var largestLead = 0
            for number in scene.withLockedValue({ $0.log }) {
                served[number] += 1
                largestLead = max(largestLead, served[number] - (served.min() ?? 0))
            }
            #expect(largestLead <= 1)
        }
    }
}
