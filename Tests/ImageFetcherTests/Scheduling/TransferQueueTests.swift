import NIOCore
import Testing

@testable import ImageFetcher

@Suite struct TransferQueueTests {
    private func entry(
        _ id: UInt64, uid: UInt32 = 1, origin: String = "a", connections: Int = 100, deadline: UInt64 = 1000
    ) -> TransferQueue.Entry {
        TransferQueue.Entry(
            id: id, uid: uid, host: HostKey(origin: origin, authority: "https://a.example"), connections: connections,
            timeout: 1_000, deadline: .uptimeNanoseconds(deadline))
    }

    private func queue(
        active: Int = 100, perUID: Int = 100, waiting: Int = 100, _ entries: [TransferQueue.Entry]
    ) throws -> TransferQueue {
        var queue = TransferQueue(limits: .init(active: active, activePerUID: perUID, waitingPerUID: waiting))
        for entry in entries { try queue.add(entry) }
        return queue
    }

    /// Takes out what may begin, all at once.
    private func begun(_ queue: inout TransferQueue) -> [UInt64] {
        var ids: [UInt64] = []
        while let entry = queue.next() { ids.append(entry.id) }
        return ids
    }

    /// Takes out everything, ending each download before the next begins.
    private func order(_ queue: inout TransferQueue) -> [UInt64] {
        var ids: [UInt64] = []
        while let entry = queue.next() {
            ids.append(entry.id)
            queue.finish(entry)
        }
        return ids
    }

    @Test func `downloads of one uid from one origin begin in the order they came`() throws {
        var queue = try queue((1...5).map { entry($0) })
        #expect(begun(&queue) == [1, 2, 3, 4, 5])
        #expect(queue.active == 5 && queue.waiting == 0)
    }

    @Test func `I8, F20: uids take turns, so that a flood of one does not hold up another`() throws {
        let flood = (1...50).map { entry($0, uid: 1) }
        var queue = try queue(active: 1, flood + [entry(51, uid: 2), entry(52, uid: 2), entry(53, uid: 3)])
        #expect(order(&queue).prefix(6) == [1, 51, 53, 2, 52, 3])
    }

    @Test func `I8, F20: uids take turns at one origin whatever is going on at another`() throws {
        // Both uids want both origins, each of which serves one at a time, and their image keys fall free in turn.
        var queue = try queue(
            (0..<20).flatMap { number in
                let id = UInt64(number) * 4
                return [
                    entry(id, uid: 1, origin: "a", connections: 1), entry(id + 1, uid: 1, origin: "b", connections: 1),
                    entry(id + 2, uid: 2, origin: "a", connections: 1),
                    entry(id + 3, uid: 2, origin: "b", connections: 1),
                ]
            })
        var served: [String: [UInt32]] = [:]
        var active: [TransferQueue.Entry] = []
        for _ in 0..<20 {
            while let entry = queue.next() {
                served[entry.host.origin, default: []].append(entry.uid)
                active.append(entry)
            }
            queue.finish(active.removeFirst())
        }
        for (_, uids) in served { #expect(zip(uids, uids.dropFirst()).allSatisfy { $0 != $1 }) }
        #expect(served.count == 2)
    }

    @Test func `I8: at most so many run at once in all`() throws {
        var queue = try queue(active: 3, (1...10).map { entry($0, uid: UInt32($0)) })
        #expect(begun(&queue).count == 3)
        queue.finish(entry(1, uid: 1))
        #expect(begun(&queue) == [4])
    }

    @Test func `I8: at most so many of a uid run at once, and another uid is passed on to`() throws {
        var queue = try queue(perUID: 2, (1...5).map { entry($0, uid: 1) } + [entry(6, uid: 2)])
        #expect(Set(begun(&queue)) == [1, 2, 6])
        queue.finish(entry(2, uid: 1))
        #expect(begun(&queue) == [3])
    }

    @Test func `I8, F37: at most so many run at once from an origin, and another origin is passed on to`() throws {
        var queue = try queue(
            (1...5).map { entry($0, origin: "slow", connections: 2) } + [entry(6, origin: "quick", connections: 2)])
        #expect(Set(begun(&queue)) == [1, 2, 6])
        queue.finish(entry(1, origin: "slow"))
        #expect(begun(&queue) == [3])
    }

    @Test func `F68: however many of a uid run from an origin, an eighth of its room is for others' first`() throws {
        var queue = try queue((1...40).map { entry($0, uid: 1, connections: 32) })
        #expect(begun(&queue).count == 28)
        for uid in 2...6 as ClosedRange<UInt32> {
            for id in 1...2 as ClosedRange<UInt64> {
                try queue.add(entry(UInt64(uid) * 100 + id, uid: uid, connections: 32))
            }
        }
        #expect(begun(&queue) == [201, 301, 401, 501])
        // Of what falls free the first is for who has none, and the others for nobody else, until there is more.
        queue.finish(entry(201, uid: 2, connections: 32))
        #expect(begun(&queue) == [601])
        queue.finish(entry(1, uid: 1, connections: 32))
        #expect(begun(&queue) == [202])
        for id in 2...5 as ClosedRange<UInt64> { queue.finish(entry(id, uid: 1, connections: 32)) }
        #expect(begun(&queue).isEmpty)
        queue.finish(entry(6, uid: 1, connections: 32))
        #expect(begun(&queue).count == 1)
    }

    @Test func `F68: so it is with all origins' room together, and no uid is refused that finds room`() throws {
        var queue = TransferQueue(limits: .init(active: 16, activePerUID: 16, waitingPerUID: 0))
        for id in 1...14 as ClosedRange<UInt64> {
            try queue.add(entry(id, uid: 1, origin: "\(id)"))
            #expect(queue.next()?.id == id)
        }
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(15, uid: 1, origin: "15")) }
        for uid in 2...3 as ClosedRange<UInt32> {
            try queue.add(entry(UInt64(uid) * 100, uid: uid))
            #expect(queue.next()?.uid == uid)
        }
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(400, uid: 4)) }
    }

    @Test func `I8: no more of a uid wait than may, and others are not refused for it`() throws {
        var queue = TransferQueue(limits: .init(active: 1, activePerUID: 1, waitingPerUID: 2))
        try queue.add(entry(1))
        #expect(queue.next()?.id == 1)
        try queue.add(entry(2))
        try queue.add(entry(3))
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(4)) }
        try queue.add(entry(5, uid: 2))
        #expect(queue.waiting == 3)
    }

    @Test func `with no room to wait, what can begin at once is taken`() throws {
        var queue = TransferQueue(limits: .init(active: 2, activePerUID: 1, waitingPerUID: 0))
        try queue.add(entry(1))
        #expect(queue.next()?.id == 1)
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(2)) }
        try queue.add(entry(3, uid: 2))
        #expect(queue.next()?.id == 3)
        #expect(throws: TransferQueue.Full.self) { try queue.add(entry(4, uid: 3)) }
        queue.finish(entry(1))
        try queue.add(entry(5))
        #expect(queue.next()?.id == 5)
    }

    @Test func `what waits can be taken out, from anywhere in its line, once`() throws {
        var queue = try queue(active: 1, (1...6).map { entry($0 * 10) })
        for present in [entry(10), entry(30), entry(60)] {
            let wasThere = queue.remove(present)
            #expect(wasThere)
        }
        for absent in [entry(30), entry(35), entry(70), entry(20, uid: 2), entry(20, origin: "b")] {
            let wasThere = queue.remove(absent)
            #expect(!wasThere)
        }
        #expect(queue.waiting == 3)
        #expect(order(&queue) == [20, 40, 50])
        let isStillThere = queue.remove(entry(20))
        #expect(!isStillThere)
    }

    @Test func `what has waited too long is given out, and nothing else`() throws {
        var queue = try queue(
            active: 1,
            [
                entry(1, deadline: 10), entry(2, deadline: 20), entry(3, uid: 2, deadline: 15),
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

    @Test func `a lower limit lets what runs run on, and holds for what comes`() throws {
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
    func `I8: whatever happens in whatever order, the limits hold and nothing is lost`(seed: UInt64) throws {
        var random = SplitMix(state: seed)
        var queue = TransferQueue(limits: .init(active: 5, activePerUID: 3, waitingPerUID: 8))
        var waiting: [TransferQueue.Entry] = []
        var active: [TransferQueue.Entry] = []
        for id in 0..<3000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<5:
                let new = entry(
                    UInt64(id), uid: .random(in: 1...3, using: &random),
                    origin: ["a", "b"].randomElement(using: &random)!,
                    connections: 4, deadline: UInt64(id) + .random(in: 10...200, using: &random))
                let ofUID = waiting.count { $0.uid == new.uid }
                do {
                    try queue.add(new)
                    waiting.append(new)
                    #expect(ofUID < 8)
                } catch {
                    #expect(ofUID == 8)
                }
            case 5:
                if let index = waiting.indices.randomElement(using: &random) {
                    let wasThere = queue.remove(waiting.remove(at: index))
                    #expect(wasThere)
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
            for uid: UInt32 in 1...3 { #expect(active.count { $0.uid == uid } <= 3) }
            for origin in ["a", "b"] { #expect(active.count { $0.host.origin == origin } <= 4) }
            // Nothing waits that could begin.
            for entry in waiting where active.count < 5 {
                let ofOrigin = active.count { $0.host.origin == entry.host.origin }
                #expect(active.count { $0.uid == entry.uid } == 3 || ofOrigin == 4)
            }
        }
    }
}

/// A small generator that gives the same numbers for the same seed.
private struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
