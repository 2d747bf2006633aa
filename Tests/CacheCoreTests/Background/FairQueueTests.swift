import Testing

@testable import CacheCore

/// Turns between owners (I8).
@Suite struct FairQueueTests {
    private var queue = FairQueue<UInt32, String>(quantum: 10)

    private mutating func add(_ names: [String], of owner: UInt32, cost: Int = 10) {
        for name in names { queue.append(name, of: owner, cost: cost) }
    }

    private mutating func takeAll(mayHave: (UInt32) -> Bool = { _ in true }) -> [String] {
        var taken: [String] = []
        while let next = queue.popFirst(mayHave: mayHave) { taken.append(next.element) }
        return taken
    }

    @Test mutating func `pieces of one owner come in their order`() {
        add(["a", "b", "c"], of: 1)
        #expect(queue.count == 3 && queue.count(of: 1) == 3)
        #expect(takeAll() == ["a", "b", "c"])
        #expect(queue.isEmpty && queue.popFirst() == nil)
    }

    @Test mutating func `I8: one with a thousand pieces is served no sooner than one with a single one`() {
        add((0..<1_000).map { "flood \($0)" }, of: 1)
        add(["single"], of: 2)
        let order = takeAll()
        #expect(order.prefix(2).contains("single") && order.count == 1_001)
    }

    @Test mutating func `I8: turns are of equal cost, not of equal number`() {
        add((0..<100).map { _ in "large" }, of: 1, cost: 40)
        add((0..<100).map { _ in "small" }, of: 2, cost: 5)
        let first = (0..<72).compactMap { _ in queue.popFirst()?.element }
        // 8 times 40 and 64 times 5, give or take the turn that is under way.
        #expect((7...9).contains(first.count { $0 == "large" }))
    }

    @Test mutating func `what a piece cost beyond what was thought is taken from the owner's next turns`() {
        add(["slow", "next"], of: 1)
        add(["x", "y", "z"], of: 2)
        #expect(queue.popFirst()?.element == "slow")
        queue.charge(30, to: 1)
        #expect(takeAll() == ["x", "y", "z", "next"])
    }

    @Test mutating func `what was cheaper gives no more than a turn back`() {
        add(["a", "b", "c", "d"], of: 1)
        add(["x"], of: 2)
        #expect(queue.popFirst()?.element == "a")
        queue.charge(-1_000, to: 1)
        #expect(takeAll() == ["b", "x", "c", "d"])
    }

    @Test mutating func `who may have none keeps its place, and the others are served`() {
        add(["held", "held too"], of: 1)
        add(["x", "y"], of: 2)
        #expect(takeAll(mayHave: { $0 == 2 }) == ["x", "y"])
        #expect(queue.count == 2)
        #expect(takeAll() == ["held", "held too"])
    }

    @Test mutating func `a piece of any cost comes out, and nobody owes for ever`() {
        add(["huge"], of: 1, cost: .max)
        add(["negative"], of: 2, cost: -5)
        #expect(Set(takeAll()) == ["huge", "negative"])
        add(["a", "b"], of: 1)
        _ = queue.popFirst()
        queue.charge(.max, to: 1)
        #expect(takeAll() == ["b"])
    }

    /// The address of what stands first in the line of 1.
    private var start: UInt? {
        func address(_ line: some Collection) -> UInt? {
            line.withContiguousStorageIfAvailable { UInt(bitPattern: $0.baseAddress) }
        }
        return queue.lines[1].flatMap { address($0.waiting) }
    }

    @Test mutating func `I8: a line stays where it lies when a piece is taken out, however long it is`() throws {
        add((0..<1_000).map { "\($0)" }, of: 1)
        let first = try #require(start)
        for number in 0..<999 {
            #expect(queue.popFirst()?.element == "\(number)")
            #expect(start == first + UInt((number + 1) * MemoryLayout<(String, Int)>.stride))
        }
    }

    @Test mutating func `I8: what owners owe costs no round for each turn`() {
        for owner in 1...3 as ClosedRange<UInt32> {
            add(["a", "b"], of: owner)
            #expect(queue.popFirst()?.owner == owner)
            queue.charge(.max, to: owner)
        }
        queue.charge(-300, to: 2)
        var asked = 0
        let next = queue.popFirst { _ in
            asked += 1
            return true
        }
        #expect(next?.owner == 2 && asked <= 9)
        // What they saved meanwhile is theirs.
        #expect(queue.popFirst()?.owner == 1)
        #expect(queue.popFirst()?.owner == 3)
    }

    @Test mutating func `owners without anything in line take up no room`() {
        for owner in 0..<1_000 as Range<UInt32> {
            add(["x"], of: owner)
            _ = queue.popFirst()
            queue.charge(1_000, to: owner)
        }
        #expect(queue.isEmpty && queue.lines.isEmpty)
    }
}
