import NIOCore
import Testing

@testable import ImageFetcher

/// Which transfer begins when there is room, as a value, with the limits that token requests have.
@Suite struct FairTransfersTests {
    private static func entry(
        _ id: UInt64, _ origin: String, _ uid: UInt32, host: String = "https://id.example", connections: Int = 8,
        deadline: Int64 = 1_000
    ) -> TransferQueue.Entry {
        TransferQueue.Entry(
            id: id, uid: uid, host: HostKey(origin: origin, authority: host), connections: connections, timeout: 1_000,
            deadline: .uptimeNanoseconds(0) + .milliseconds(deadline))
    }

    private static func empty(most: Int = 32) -> TransferQueue {
        TransferQueue(limits: .init(active: most, activePerUID: most, waitingPerUID: 100))
    }

    /// A queue with those under way, of whom none waits any more.
    private func queue(underWay: [(String, UInt32)]) throws -> TransferQueue {
        var queue = Self.empty()
        for (number, (origin, uid)) in underWay.enumerated() {
            try queue.add(Self.entry(UInt64(number), origin, uid))
            #expect(queue.next()?.id == UInt64(number))
        }
        return queue
    }

    private static let full = ["a", "b", "c"].flatMap { name in
        (0..<7).map { _ in (name, 1 as UInt32) } + [(name, 9 as UInt32)]
    }

    @Test(
        arguments: [
            ([("d", 3), ("e", 1)], 1), ([("a", 3), ("d", 1), ("d", 2), ("d", 2)], 2), ([("d", 4), ("d", 5)], 0),
            ([("a", 3), ("c", 4)], nil), ([], nil),
        ] as [([(String, UInt32)], Int?)])
    func `F37, I8: free room goes to the origin with the fewest under way, then to the uid with the fewest`(
        waiting: [(String, UInt32)], next: Int?
    ) throws {
        var queue = try queue(underWay: Self.full + [("d", 1), ("d", 1), ("d", 2)])
        for (number, (origin, uid)) in waiting.enumerated() {
            try queue.add(Self.entry(UInt64(100 + number), origin, uid))
        }
        #expect(queue.next()?.id == next.map { UInt64(100 + $0) })
    }

    @Test func `room that is given back goes to who waits for it`() throws {
        var queue = Self.empty(most: 1)
        for id in 1...3 as ClosedRange<UInt64> { try queue.add(Self.entry(id, "a", 1, connections: 1)) }
        for id in 1...3 as ClosedRange<UInt64> {
            let entry = queue.next()
            #expect(entry?.id == id && queue.next() == nil)
            if let entry { queue.finish(entry) }
        }
        #expect(queue.next() == nil && queue.nextDeadline == nil)
    }

    @Test func `F37: what waits for a host is taken out in its order, of one uid or of all, and nothing else`() throws {
        var queue = Self.empty()
        let all = [
            Self.entry(1, "a", 1), Self.entry(2, "a", 2), Self.entry(3, "a", 1), Self.entry(4, "b", 1),
            Self.entry(5, "a", 1, host: "https://other.example"), Self.entry(6, "a", 3),
        ]
        for entry in all { try queue.add(entry) }
        #expect(queue.removeAll(for: all[0].host, of: 1).map(\.id) == [1, 3])
        #expect(queue.removeAll(for: all[0].host, of: nil).map(\.id) == [2, 6])
        #expect(queue.removeAll(for: all[0].host, of: nil).isEmpty)
        #expect([queue.next()?.id, queue.next()?.id, queue.next()?.id] == [5, 4, nil])
    }

    @Test func `one that is let go of, or has waited too long, leaves its line`() throws {
        var queue = Self.empty()
        let all = (1...9 as ClosedRange<UInt64>).map { Self.entry($0, "a", UInt32($0 % 2), deadline: Int64($0)) }
        for entry in all { try queue.add(entry) }
        #expect(queue.remove(all[4]) && !queue.remove(all[4]))
        #expect(queue.nextDeadline == all[0].deadline)
        #expect(Set(queue.expire(at: all[5].deadline).map(\.id)) == [1, 2, 3, 4, 6])
        #expect([queue.next()?.id, queue.next()?.id, queue.next()?.id, queue.next()?.id] == [7, 8, 9, nil])
    }
}
