import NIOConcurrencyHelpers
import Testing

@testable import thumbcached_oidc

@Suite struct ConnectionTableTests {
    private let closed = NIOLockedValueBox<[String]>([])

    private func add(_ table: ConnectionTable, _ peer: String, _ name: String? = nil) -> UInt64 {
        table.add(peer: peer) { [closed] in closed.withLockedValue { $0.append(name ?? peer) } }
    }

    @Test func `F84: the longest idle connection of the peer with the most idle ones is closed`() {
        let table = ConnectionTable(limit: 4)
        _ = add(table, "provider")
        for index in 1...3 { _ = add(table, "attacker", "attacker \(index)") }
        #expect(closed.withLockedValue { $0 }.isEmpty)
        for index in 4...300 { _ = add(table, "attacker", "attacker \(index)") }
        #expect(closed.withLockedValue { $0 } == (1...297).map { "attacker \($0)" })
        _ = add(table, "provider", "provider 2")
        #expect(closed.withLockedValue { $0.last } == "attacker 298")
        #expect(table.count == 4)
    }

    @Test func `F84: among peers with the same number, the longest idle connection is closed`() {
        let table = ConnectionTable(limit: 3)
        for peer in ["a", "b", "c", "d", "e"] { _ = add(table, peer) }
        #expect(closed.withLockedValue { $0 } == ["a", "b"])
    }

    @Test func `F84: 300 idle connections neither block nor end other requests`() {
        let table = ConnectionTable(limit: 128)
        let earlier = add(table, "provider", "earlier")
        #expect(table.beginResponse(earlier))
        for _ in 0..<300 { _ = add(table, "attacker") }
        #expect(table.isAccepting)
        let later = add(table, "provider", "later")
        #expect(table.beginResponse(later))
        for _ in 0..<300 { _ = add(table, "attacker") }
        #expect(closed.withLockedValue { $0.allSatisfy { $0 == "attacker" } })
        table.endResponse(later)
        table.remove(later)
        #expect(table.count == 127)
    }

    @Test func `F84: a burst of requests waits in the kernel while half of the connections are answered`() {
        let table = ConnectionTable(limit: 4)
        let connections = (0..<2).map { _ in add(table, "provider") }
        #expect(table.isAccepting)
        for id in connections { #expect(table.beginResponse(id)) }
        // Repeated calls change nothing.
        for id in connections { #expect(table.beginResponse(id)) }
        #expect(!table.isAccepting)
        table.endResponse(connections[0])
        table.endResponse(connections[0])
        #expect(table.isAccepting)
        table.remove(connections[1])
        table.remove(connections[1])
        table.remove(connections[0])
        #expect(table.isAccepting && table.count == 0)
        let all = (0..<4).map { _ in add(table, "provider") }
        for id in all { #expect(table.beginResponse(id)) }
        // Accepted before the pause took effect; its request is answered.
        #expect(table.beginResponse(add(table, "provider")))
        #expect(closed.withLockedValue { $0 }.isEmpty)
    }

    @Test func `F84: a connection closed for another one is not answered`() {
        let table = ConnectionTable(limit: 1)
        let first = add(table, "a")
        let second = add(table, "b")
        #expect(!table.beginResponse(first) && table.beginResponse(second))
        table.endResponse(first)
        table.remove(first)
        #expect(table.count == 1)
    }
}
