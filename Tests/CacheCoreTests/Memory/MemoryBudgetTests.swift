import Testing

@testable import CacheCore

/// What is kept because of an account, and of all of them (I8, F67).
@Suite struct MemoryBudgetTests {
    private let budget = MemoryBudget(
        limits: { MemoryBudget.Limits(perUID: 100, total: 250) }, accountOf: { $0 >= 100_000 ? 1000 : $0 })

    @Test func `an account takes what its limit allows, over all that is kept for it`() {
        let (one, two) = (budget.lease(for: 1000), budget.lease(for: 1000))
        #expect(one.take(60))
        #expect(!two.take(41))
        #expect(two.take(40))
        #expect(budget.bytes(of: 1000) == 100)
        #expect(!two.hasRoom(for: 1) && two.hasRoom(for: 0))
        one.give(10)
        #expect(two.take(10))
        #expect(!one.take(1))
    }

    @Test func `F80: the uids of an account have one budget`() {
        let leases = [budget.lease(for: 1000), budget.lease(for: 100_000), budget.lease(for: 100_001)]
        #expect(leases[0].take(50) && leases[1].take(50))
        #expect(!leases[2].take(1))
        #expect(budget.bytes(of: 100_007) == 100)
    }

    @Test func `what is kept no more counts no more`() {
        var lease: MemoryLease? = budget.lease(for: 1000)
        #expect(lease?.take(100) == true)
        lease = nil
        #expect(budget.bytes(of: 1000) == 0 && budget.bytes == 0)
    }

    @Test func `what is there already counts, room or not`() {
        let lease = budget.lease(for: 1000)
        lease.set(to: 150)
        #expect(budget.bytes(of: 1000) == 150)
        #expect(!lease.hasRoom(for: 0))
        // Less is always possible.
        #expect(lease.change(to: 120) && lease.bytes == 120)
        #expect(!lease.change(to: 121) && lease.bytes == 120)
        lease.set(to: 0)
        #expect(lease.change(to: 100) && budget.bytes == 100)
    }

    @Test func `F67: when all together have no room left, an account below an equal share still has its part`() {
        let many = [1, 2, 3].map { budget.lease(for: $0) }
        #expect(many[0].take(100) && many[1].take(100) && many[2].take(50))
        // A third of 250 is 83.
        #expect(many[2].take(33) && !many[2].take(1))
        #expect(!many[0].take(1))
        // A fourth has a quarter.
        let late = budget.lease(for: 4)
        #expect(!late.take(63) && late.take(62))
        #expect(late.refusal.contains("(limit memory, 250)"))
        #expect(many[0].refusal.contains("take 100 bytes (limit memory-per-uid, 100)"))
    }
}
