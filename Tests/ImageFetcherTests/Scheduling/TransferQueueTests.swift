import NIOCore
import TestSupport
import Testing

@testable import ImageFetcher

@Suite struct TransferQueueTests {
    private func entry(
        _ id: UInt64, account: UInt32 = 1, origin: String = "a", host: String = "https://a.example",
        connections: Int = 100, timeout: Int64 = 1_000, deadline: UInt64 = 1000
    ) -> TransferQueue.Entry {
        TransferQueue.Entry(
            id: id, account: account, host: HostKey(origin: origin, authority: host), connections: connections,
            timeout: timeout, deadline: .uptimeNanoseconds(deadline))
    }

    private func queue(
        active: Int = 100, perAccount: Int = 100, waiting: Int = 100, _ entries: [TransferQueue.Entry]
    ) throws -> TransferQueue {
        var queue = TransferQueue(
            limits: .init(active: active, activePerAccount: perAccount, waitingPerAccount: waiting))
        for entry in entries { try queue.add(entry) }
        return queue
    }

    /// Removes all entries that may begin now.
    private func begun(_ queue: inout TransferQueue) -> [UInt64] {
        var ids: [UInt64] = []
        while let entry = queue.next() { ids.append(entry.id) }
        return ids
    }

    /// Removes all entries, and finishes each before the next begins.
    private func order(_ queue: inout TransferQueue) -> [UInt64] {
        var ids: [UInt64] = []
        while let entry = queue.next() {
            ids.append(entry.id)
            queue.finish(entry)
        }
        return ids
    }

    @Test func `downloads of one account from one origin begin in order`() throws {
        var queue = try queue((1...5).map { entry($0) })
        #expect(begun(&queue) == [1, 2, 3, 4, 5])
        #expect(queue.active == 5 && queue.waiting == 0)
    }

    @Test func `downloads of one account begin in order, whatever their timeouts`() throws {
        var queue = try queue(active: 1, (1...6).map { entry($0, timeout: $0 % 3 == 0 ? 100 : 1_000) })
        #expect(order(&queue) == [1, 2, 3, 4, 5, 6])
    }

    @Test(
        arguments: [
            ([("d", 3), ("e", 1)], 1), ([("a", 3), ("d", 1), ("d", 2), ("d", 2)], 2), ([("d", 4), ("d", 5)], 0),
            ([("a", 3), ("c", 4)], nil), ([], nil),
        ] as [([(String, UInt32)], Int?)])
    func `F37, I8: free room goes to the origin with the fewest active transfers, then to the account with the fewest`(
        waiting: [(String, UInt32)], next: Int?
    ) throws {
        // Origins a, b and c are full: 7 transfers of account 1, and one of account 9.
        let full: [(String, UInt32)] = ["a", "b", "c"].flatMap { name in
            Array(repeating: (name, 1), count: 7) + [(name, 9)]
        }
        var queue = try queue(active: 32, [])
        for (number, (origin, account)) in (full + [("d", 1), ("d", 1), ("d", 2)]).enumerated() {
            try queue.add(entry(UInt64(number), account: account, origin: origin, connections: 8))
            #expect(queue.next()?.id == UInt64(number))
        }
        for (number, (origin, account)) in waiting.enumerated() {
            try queue.add(entry(UInt64(100 + number), account: account, origin: origin, connections: 8))
        }
        #expect(queue.next()?.id == next.map { UInt64(100 + $0) })
    }

    @Test func `I8, F20: accounts take turns, so that many downloads of one do not delay another`() throws {
        let flood = (1...50).map { entry($0, account: 1) }
        var queue = try queue(active: 1, flood + [entry(51, account: 2), entry(52, account: 2), entry(53, account: 3)])
        #expect(order(&queue).prefix(6) == [1, 51, 53, 2, 52, 3])
    }

    @Test func `I8, F20: accounts take turns at one origin, whatever happens at another`() throws {
        // Both accounts use both origins, each with one connection, which become free alternately.
        var queue = try queue(
            (0..<20).flatMap { number in
                let id = UInt64(number) * 4
                return [
                    entry(id, account: 1, origin: "a", connections: 1),
                    entry(id + 1, account: 1, origin: "b", connections: 1),
                    entry(id + 2, account: 2, origin: "a", connections: 1),
                    entry(id + 3, account: 2, origin: "b", connections: 1),
                ]
            })
        var served: [String: [UInt32]] = [:]
        var active: [TransferQueue.Entry] = []
        for _ in 0..<20 {
            while let entry = queue.next() {
                served[entry.host.origin, default: []].append(entry.account)
                active.append(entry)
            }
            queue.finish(active.removeFirst())
        }
        for (_, accounts) in served { #expect(zip(accounts, accounts.dropFirst()).allSatisfy { $0 != $1 }) }
        #expect(served.count == 2)
    }

    @Test func `I8: the total number of active transfers is limited`() throws {
        var queue = try queue(active: 3, (1...10).map { entry($0, account: UInt32($0)) })
        #expect(begun(&queue).count == 3)
        queue.finish(entry(1, account: 1))
        #expect(begun(&queue) == [4])
    }

    @Test func `I8: the active transfers of an account are limited, and other accounts continue`() throws {
        var queue = try queue(perAccount: 2, (1...5).map { entry($0, account: 1) } + [entry(6, account: 2)])
        #expect(Set(begun(&queue)) == [1, 2, 6])
        queue.finish(entry(2, account: 1))
        #expect(begun(&queue) == [3])
    }

    @Test func `I8, F37: the active transfers of an origin are limited, and other origins continue`() throws {
        var queue = try queue(
            (1...5).map { entry($0, origin: "slow", connections: 2) } + [entry(6, origin: "quick", connections: 2)])
        #expect(Set(begun(&queue)) == [1, 2, 6])
        queue.finish(entry(1, origin: "slow"))
        #expect(begun(&queue) == [3])
    }

    @Test func `F68: an eighth of an origin's connections is reserved for accounts without a transfer there`() throws {
        var queue = try queue((1...40).map { entry($0, account: 1, connections: 32) })
        #expect(begun(&queue).count == 28)
        for account in 2...6 as ClosedRange<UInt32> {
            for id in 1...2 as ClosedRange<UInt64> {
                try queue.add(entry(UInt64(account) * 100 + id, account: account, connections: 32))
            }
        }
        #expect(begun(&queue) == [201, 301, 401, 501])
        // A freed connection in the reserve goes to an account without a transfer only.
        queue.finish(entry(201, account: 2, connections: 32))
        #expect(begun(&queue) == [601])
        queue.finish(entry(1, account: 1, connections: 32))
        #expect(begun(&queue) == [202])
        for id in 2...5 as ClosedRange<UInt64> { queue.finish(entry(id, account: 1, connections: 32)) }
        #expect(begun(&queue).isEmpty)
        queue.finish(entry(6, account: 1, connections: 32))
        #expect(begun(&queue).count == 1)
    }

    @Test func `F68: an eighth of all transfers is reserved likewise, and an account that finds room is not rejected`()
        throws
    {
        var queue = TransferQueue(limits: .init(active: 16, activePerAccount: 16, waitingPerAccount: 0))
        for id in 1...14 as ClosedRange<UInt64> {
            try queue.add(entry(id, account: 1, origin: "\(id)"))
            #expect(queue.next()?.id == id)
        }
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(15, account: 1, origin: "15")) }
        for account in 2...3 as ClosedRange<UInt32> {
            try queue.add(entry(UInt64(account) * 100, account: account))
            #expect(queue.next()?.account == account)
        }
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(400, account: 4)) }
    }

    @Test func `I8: the queue of an account is limited, and other accounts are not affected`() throws {
        var queue = TransferQueue(limits: .init(active: 1, activePerAccount: 1, waitingPerAccount: 2))
        try queue.add(entry(1))
        #expect(queue.next()?.id == 1)
        try queue.add(entry(2))
        try queue.add(entry(3))
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(4)) }
        try queue.add(entry(5, account: 2))
        #expect(queue.waiting == 3)
    }

    @Test func `without a queue, a transfer that can begin at once is accepted`() throws {
        var queue = TransferQueue(limits: .init(active: 2, activePerAccount: 1, waitingPerAccount: 0))
        try queue.add(entry(1))
        #expect(queue.next()?.id == 1)
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(2)) }
        try queue.add(entry(3, account: 2))
        #expect(queue.next()?.id == 3)
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(4, account: 3)) }
        queue.finish(entry(1))
        try queue.add(entry(5))
        #expect(queue.next()?.id == 5)
    }

    @Test func `a queued transfer can be removed once, from any position`() throws {
        var queue = try queue(active: 1, (1...6).map { entry($0 * 10) })
        for present in [entry(10), entry(30), entry(60)] {
            let isRemoved = queue.remove(present)
            #expect(isRemoved)
        }
        for absent in [entry(30), entry(35), entry(70), entry(20, account: 2), entry(20, origin: "b")] {
            let isRemoved = queue.remove(absent)
            #expect(!isRemoved)
        }
        #expect(queue.waiting == 3)
        #expect(order(&queue) == [20, 40, 50])
        let isRemovedAgain = queue.remove(entry(20))
        #expect(!isRemovedAgain)
    }

    @Test func `transfers that have waited too long expire, and no others`() throws {
        var queue = try queue(
            active: 1,
            [
                entry(1, deadline: 10), entry(2, deadline: 20), entry(3, account: 2, deadline: 15),
                entry(4, origin: "b", deadline: 5), entry(5, origin: "b", deadline: 30),
            ])
        #expect(queue.nextDeadline == .uptimeNanoseconds(5))
        #expect(queue.expire(at: .uptimeNanoseconds(4)).isEmpty)
        #expect(Set(queue.expire(at: .uptimeNanoseconds(15)).map(\.id)) == [1, 3, 4])
        #expect(queue.nextDeadline == .uptimeNanoseconds(20))
        #expect(queue.waiting == 2)
        #expect(Set(queue.expire(at: .uptimeNanoseconds(30)).map(\.id)) == [2, 5])
        #expect(queue.nextDeadline == nil && queue.waiting == 0)
    }

    @Test func `F37: queued transfers to a host are removed, of one account or of all`() throws {
        let all = [
            entry(1, account: 1), entry(2, account: 2), entry(3, account: 1), entry(4, account: 1, origin: "b"),
            entry(5, account: 1, host: "https://other.example"), entry(6, account: 3),
        ]
        var queue = try queue(all)
        #expect(queue.removeAll(for: all[0].host, of: 1).map(\.id) == [1, 3])
        #expect(queue.removeAll(for: all[0].host, of: nil).map(\.id) == [2, 6])
        #expect(queue.removeAll(for: all[0].host, of: nil).isEmpty)
        #expect(Set(begun(&queue)) == [4, 5])
    }

    @Test func `a lower limit applies to new transfers and does not end active ones`() throws {
        var queue = try queue((1...6).map { entry($0) })
        for _ in 0..<3 { _ = queue.next() }
        queue.limits.active = 1
        #expect(queue.next() == nil)
        queue.finish(entry(1))
        queue.finish(entry(2))
        #expect(queue.next() == nil)
        queue.finish(entry(3))
        #expect(begun(&queue) == [4])
    }

    @Test(arguments: 0..<20)
    func `I8: in random sequences the limits hold and no transfer is lost`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        var queue = TransferQueue(limits: .init(active: 5, activePerAccount: 3, waitingPerAccount: 8))
        var waiting: [TransferQueue.Entry] = []
        var active: [TransferQueue.Entry] = []
        for id in 0..<3000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<5:
                let new = entry(
                    UInt64(id), account: .random(in: 1...3, using: &random),
                    origin: ["a", "b"].randomElement(using: &random)!,
                    connections: 4, deadline: UInt64(id) + .random(in: 10...200, using: &random))
                let ofAccount = waiting.count { $0.account == new.account }
                do {
                    try queue.add(new)
                    waiting.append(new)
                    #expect(ofAccount < 8)
                } catch {
                    #expect(ofAccount == 8)
                }
            case 5:
                if let index = waiting.indices.randomElement(using: &random) {
                    let isRemoved = queue.remove(waiting.remove(at: index))
                    #expect(isRemoved)
                }
            case 6:
                for entry in queue.expire(at: .uptimeNanoseconds(UInt64(id))) {
                    #expect(entry.deadline <= .uptimeNanoseconds(UInt64(id)))
                    let index = try #require(waiting.firstIndex(of: entry))
                    waiting.remove(at: index)
                }
            default:
                if let index = active.indices.randomElement(using: &random) { queue.finish(active.remove(at: index)) }
            }
            while let entry = queue.next() {
                let index = try #require(waiting.firstIndex(of: entry))
                waiting.remove(at: index)
                active.append(entry)
            }
            #expect(queue.waiting == waiting.count && queue.active == active.count)
            #expect(active.count <= 5)
            for account: UInt32 in 1...3 { #expect(active.count { $0.account == account } <= 3) }
            for origin in ["a", "b"] { #expect(active.count { $0.host.origin == origin } <= 4) }
            // No queued transfer could begin.
            for entry in waiting where active.count < 5 {
                let ofOrigin = active.count { $0.host.origin == entry.host.origin }
                #expect(active.count { $0.account == entry.account } == 3 || ofOrigin == 4)
            }
        }
    }
}
