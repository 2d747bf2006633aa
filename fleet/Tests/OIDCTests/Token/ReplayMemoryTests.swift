import Testing

@testable import thumbcached_oidc

@Suite struct ReplayMemoryTests {
    @Test func `F83: an id is accepted once, and again after it was released`() {
        var memory = ReplayMemory(limit: 10)
        #expect(memory.reserve("a", until: 100, at: 10) == .reserved)
        #expect(memory.reserve("a", until: 100, at: 10) == .busy)
        memory.release("a", until: 100)
        #expect(memory.reserve("a", until: 100, at: 11) == .reserved)
        memory.confirm("a")
        #expect(memory.reserve("a", until: 100, at: 100) == .seen)
        // A confirmed id cannot be released.
        memory.release("a", until: 100)
        #expect(memory.reserve("a", until: 100, at: 100) == .seen)
        // The same id in a token with a later end is still rejected.
        #expect(memory.reserve("a", until: 200, at: 100) == .seen)
    }

    @Test func `F83: a full memory rejects new ids and keeps those of valid tokens`() {
        var memory = ReplayMemory(limit: 2)
        #expect(memory.reserve("a", until: 100, at: 10) == .reserved)
        #expect(memory.reserve("b", until: 200, at: 10) == .reserved)
        memory.confirm("a")
        memory.confirm("b")
        #expect(memory.reserve("c", until: 300, at: 100) == .full)
        #expect(memory.reserve("a", until: 100, at: 100) == .seen)
        // The token of `a` has expired, so its id is dropped.
        #expect(memory.reserve("c", until: 300, at: 101) == .reserved)
        #expect(memory.count == 2)
        #expect(memory.reserve("b", until: 200, at: 101) == .seen)
    }

    @Test func `F83: a dropped id is not accepted again when the clock is set back`() {
        var memory = ReplayMemory(limit: 10)
        #expect(memory.reserve("a", until: 100, at: 10) == .reserved)
        memory.confirm("a")
        // The clock is set a year ahead, and back.
        #expect(memory.reserve("b", until: 40_000_000, at: 31_536_000) == .reserved)
        #expect(memory.reserve("a", until: 100, at: 20) == .tooOld)
        #expect(memory.reserve("new", until: 100, at: 20) == .tooOld)
        #expect(memory.reserve("new", until: 101, at: 20) == .reserved)
        // Ids still expire by the corrected clock.
        memory.confirm("new")
        #expect(memory.reserve("newer", until: 300, at: 102) == .reserved)
        #expect(memory.count == 2)
    }

    @Test func `released ids use no memory`() {
        var memory = ReplayMemory(limit: 2)
        for _ in 0..<1_000 {
            #expect(memory.reserve("a", until: 100, at: 10) == .reserved)
            memory.release("a", until: 100)
        }
        #expect(memory.count == 0)
        #expect(memory.reserve("a", until: 100, at: 10) == .reserved)
        #expect(memory.reserve("b", until: 100, at: 10) == .reserved)
        #expect(memory.reserve("c", until: 100, at: 10) == .full)
    }
}
