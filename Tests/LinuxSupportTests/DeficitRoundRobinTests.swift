import Testing

@testable import LinuxSupport

/// Scheduling between accounts (I8), with a quantum of 10.
@Suite struct DeficitRoundRobinTests {
    enum Step: Sendable {
        case append(UInt32, [String], cost: Int = 10)
        case charge(UInt32, Int)
        /// The next elements, of all accounts but the held one.
        case serve([String], holding: UInt32? = nil)
    }

    private var queue = DeficitRoundRobin<UInt32, String>(quantum: 10)

    private mutating func append(_ account: UInt32, _ names: [String], cost: Int = 10) {
        for name in names { queue.append(name, of: account, cost: cost) }
    }

    private mutating func serve(_ count: Int = .max, holding account: UInt32? = nil) -> [String] {
        var served: [String] = []
        while served.count < count, let next = queue.popFirst(where: { $0 != account }) { served.append(next.element) }
        return served
    }

    @Test(
        arguments: [
            (
                "within an account, first come, first served",
                [.append(1, ["a", "b", "c"]), .serve(["a", "b", "c"])]
            ),
            (
                "accounts take turns",
                [.append(1, ["a", "b", "c"]), .append(2, ["x", "y"]), .serve(["a", "x", "b", "y", "c"])]
            ),
            (
                "turns have the same cost, not the same number of elements",
                [
                    .append(1, ["a", "b"], cost: 20), .append(2, ["1", "2", "3", "4", "5"], cost: 5),
                    .serve(["1", "2", "a", "3", "4", "5", "b"]),
                ]
            ),
            (
                "a cost charged afterwards is deducted from the next turns",
                [
                    .append(1, ["a", "b"]), .append(2, ["x", "y", "z"]), .serve(["a"]), .charge(1, 30),
                    .serve(["x", "y", "z", "b"]),
                ]
            ),
            (
                "costs that are known only afterwards (the example in docs/design.md)",
                [
                    .append(1, ["25", "5", "5"], cost: 0), .append(2, ["10", "10", "10", "10"], cost: 0),
                    .serve(["25"]), .charge(1, 25), .serve(["10"]), .charge(2, 10), .serve(["10"]), .charge(2, 10),
                    .serve(["10"]), .charge(2, 10), .serve(["5"]), .charge(1, 5), .serve(["5"]), .charge(1, 5),
                    .serve(["10"]),
                ]
            ),
            (
                "a returned cost is worth one turn at most",
                [
                    .append(1, ["a", "b", "c", "d"]), .append(2, ["x"]), .serve(["a"]), .charge(1, -1_000),
                    .serve(["b", "x", "c", "d"]),
                ]
            ),
            (
                "a deficit remains when the account's queue was empty",
                [
                    .append(1, ["a"]), .append(2, ["x", "y", "z"]), .serve(["a"]), .charge(1, 30), .append(1, ["b"]),
                    .serve(["x", "y", "z", "b"]),
                ]
            ),
            (
                "a deficit remains after the turn of an account with an empty queue",
                [
                    .append(1, ["a"]), .append(2, ["w", "x", "y", "z"]), .serve(["a"]), .charge(1, 30), .serve(["w"]),
                    .append(1, ["b"]), .serve(["x", "y", "z", "b"]),
                ]
            ),
            (
                "a deficit is forgotten when no other account waits",
                [
                    .append(1, ["a"]), .serve(["a"]), .charge(1, 30), .append(1, ["b"]), .append(2, ["x"]),
                    .serve(["b", "x"]),
                ]
            ),
            (
                "an account with an empty queue accumulates no credit",
                [
                    .append(1, ["a"]), .append(2, ["x", "y", "z"]), .serve(["a", "x", "y"]), .append(1, ["b", "c"]),
                    .serve(["z", "b", "c"]),
                ]
            ),
            (
                "an account that may not be served keeps its turn and accumulates no credit",
                [
                    .append(1, ["a", "b"]), .append(2, ["x", "y", "z"]), .serve(["x", "y"], holding: 1),
                    .serve(["z", "a", "b"]),
                ]
            ),
            (
                "costs and deficits are limited to 64 quanta",
                [
                    .append(1, ["a"], cost: .max), .append(2, ["x"], cost: -5), .serve(["x", "a"]),
                    .append(1, ["b", "c"]), .append(2, (1...66).map { "\($0)" }), .serve(["b"]), .charge(1, .max),
                    .serve((1...65).map { "\($0)" } + ["c", "66"]),
                ]
            ),
        ] as [(String, [Step])])
    mutating func `I8: elements are served in this order`(_ name: String, _ steps: [Step]) {
        for step in steps {
            switch step {
            case .append(let account, let names, let cost): append(account, names, cost: cost)
            case .charge(let account, let cost): queue.charge(cost, to: account)
            case .serve(let names, let account): #expect(serve(names.count, holding: account) == names, "\(name)")
            }
        }
        #expect(queue.isEmpty && queue.popFirst() == nil, "\(name)")
    }

    @Test mutating func `I8: an account with a thousand elements is served no sooner than one with one`() {
        append(1, (0..<1_000).map { "flood \($0)" })
        append(2, ["single"])
        #expect(queue.count(of: 1) == 1_000 && queue.count == 1_001 && queue.accounts == 2)
        #expect(serve(2).contains("single"))
        #expect(serve().count == 999)
    }

    /// The address of the first element in the queue of account 1.
    private var start: UInt? {
        func address(_ queue: some Collection) -> UInt? {
            queue.withContiguousStorageIfAvailable { UInt(bitPattern: $0.baseAddress) }
        }
        return queue.lines[1].flatMap { address($0.waiting) }
    }

    @Test mutating func `I8: removing an element does not copy a long queue`() throws {
        append(1, (0..<1_000).map { "\($0)" })
        let first = try #require(start)
        for number in 0..<999 {
            #expect(queue.popFirst()?.element == "\(number)")
            #expect(start == first + UInt((number + 1) * MemoryLayout<(String, Int)>.stride))
        }
    }

    @Test mutating func `I8: large deficits cost no additional rounds`() {
        for account in 1...3 as ClosedRange<UInt32> {
            append(account, ["a", "b"])
            #expect(queue.popFirst()?.account == account)
            queue.charge(.max, to: account)
        }
        queue.charge(-300, to: 2)
        var examined = 0
        let next = queue.popFirst { _ in
            examined += 1
            return true
        }
        #expect(next?.account == 2 && examined <= 9)
        // The skipped rounds count for the other accounts.
        #expect(queue.popFirst()?.account == 1)
        #expect(queue.popFirst()?.account == 3)
    }

    @Test mutating func `accounts without elements and deficits use no memory`() {
        append(0, ["flood", "flood"])
        for account in 1..<1_000 as Range<UInt32> {
            append(account, ["x"])
            append(0, ["flood"])
            _ = serve(2)
            queue.charge(30, to: account)
            #expect(queue.accounts <= 8 && queue.lines.count == queue.accounts)
        }
        _ = serve()
        #expect(queue.isEmpty && queue.lines.isEmpty && queue.accounts == 0)
    }
}
