import NIOConcurrencyHelpers
import Testing

@testable import thumbcached_oidc

@Suite struct ConnectionTableTests {
    private let closed = NIOLockedValueBox<[String]>([])

    private func add(_ table: ConnectionTable, _ peer: String, _ name: String? = nil) -> UInt64 {
        table.add(peer: peer) { [closed] in closed.withLockedValue { $0.append(name ?? peer) } }
    }

    @Test func `F84: the longest silent connection of the peer with most silent ones gives way`() {
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

    @Test func `F84: between peers with equal shares it is the longest silent one`() {
        let table = ConnectionTable(limit: 3)
        for peer in ["a", "b", "c", "d", "e"] { _ = add(table, peer) }
        #expect(closed.withLockedValue { $0 } == ["a", "b"])
    }

    @Test func `F84: 300 silent connections do not hinder a request, nor end one being answered`() {
        let table = ConnectionTable(limit: 128)
        let earlier = add(table, "provider", "earlier")
        #expect(table.beginAnswer(earlier))
        for _ in 0..<300 { _ = add(table, "attacker") }
        #expect(table.isAccepting)
        let later = add(table, "provider", "later")
        #expect(table.beginAnswer(later))
        for _ in 0..<300 { _ = add(table, "attacker") }
        #expect(closed.withLockedValue { $0.allSatisfy { $0 == "attacker" } })
        table.endAnswer(later)
        table.remove(later)
        #expect(table.count == 127)
    }

    @Test func `F84: a burst of requests waits in the kernel while half of the connections are answered`() {
        let table = ConnectionTable(limit: 4)
        let connections = (0..<2).map { _ in add(table, "provider") }
        #expect(table.isAccepting)
        for id in connections { #expect(table.beginAnswer(id)) }
        // Repeated calls change nothing.
        for id in connections { #expect(table.beginAnswer(id)) }
        #expect(!table.isAccepting)
        table.endAnswer(connections[0])
        table.endAnswer(connections[0])
        #expect(table.isAccepting)
        table.remove(connections[1])
        table.remove(connections[1])
        table.remove(connections[0])
        #expect(table.isAccepting && table.count == 0)
        let all = (0..<4).map { _ in add(table, "provider") }
        for id in all { #expect(table.beginAnswer(id)) }
        // Accepted before the pause took effect: no request is lost for it.
        #expect(table.beginAnswer(add(table, "provider")))
        #expect(closed.withLockedValue { $0 }.isEmpty)
    }

    @Test func `F84: a connection that gave way is not answered`() {
        let table = ConnectionTable(limit: 1)
        let first = add(table, "a")
        let second = add(table, "b")
        #expect(!table.beginAnswer(first) && table.beginAnswer(second))
        table.endAnswer(first)
        table.remove(first)
        #expect(table.count == 1)
    }
}
