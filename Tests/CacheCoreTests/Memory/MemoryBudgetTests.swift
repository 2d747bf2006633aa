import Testing

@testable import CacheCore

@Suite struct MemoryBudgetTests {
    private let budget = MemoryBudget(
        limits: { MemoryBudget.Limits(perAccount: 100, total: 250) }, accountOf: { $0 >= 100_000 ? 1000 : $0 })

    @Test func `all leases of an account share its limit`() {
        let (one, two) = (budget.lease(for: 1000), budget.lease(for: 1000))
        #expect(one.reserve(60))
        #expect(!two.reserve(41))
        #expect(two.reserve(40))
        #expect(budget.bytes(of: 1000) == 100)
        #expect(!two.hasRoom(for: 1) && two.hasRoom(for: 0))
        one.release(10)
        #expect(two.reserve(10))
        #expect(!one.reserve(1))
    }

    @Test func `F80: the uids of an account have one budget`() {
        let leases = [budget.lease(for: 1000), budget.lease(for: 100_000), budget.lease(for: 100_001)]
        #expect(leases[0].reserve(50) && leases[1].reserve(50))
        #expect(!leases[2].reserve(1))
        #expect(budget.bytes(of: 100_007) == 100)
    }

    @Test func `memory is returned when its lease is released`() {
        var lease: MemoryLease? = budget.lease(for: 1000)
        #expect(lease?.reserve(100) == true)
        lease = nil
        #expect(budget.bytes(of: 1000) == 0 && budget.bytes == 0)
    }

    @Test func `set(to:) counts even above the limit`() {
        let lease = budget.lease(for: 1000)
        lease.set(to: 150)
        #expect(budget.bytes(of: 1000) == 150)
        #expect(!lease.hasRoom(for: 0))
        // A decrease always succeeds.
        #expect(lease.change(to: 120) && lease.bytes == 120)
        #expect(!lease.change(to: 121) && lease.bytes == 120)
        lease.set(to: 0)
        #expect(lease.change(to: 100) && budget.bytes == 100)
    }

    @Test func `F67: with the total used up, an account below an equal share can still reserve`() {
        let many = [1, 2, 3].map { budget.lease(for: $0) }
        #expect(many[0].reserve(100) && many[1].reserve(100) && many[2].reserve(50))
        // A third of 250 is 83.
        #expect(many[2].reserve(33) && !many[2].reserve(1))
        #expect(!many[0].reserve(1))
        // A fourth account has a quarter.
        let late = budget.lease(for: 4)
        #expect(!late.reserve(63) && late.reserve(62))
        #expect(late.refusal.contains("limits.memory (250 bytes)"))
        #expect(many[0].refusal.contains("limits.memory-per-uid (100 bytes): account "))
    }
}
