import Testing

@testable import thumbcached_oidc

@Suite struct ReplayMemoryTests {
    @Test func `F83: an id is taken once, and again where it was given back`() {
        var memory = ReplayMemory(limit: 10)
        #expect(memory.take("a", until: 100, at: 10) == .taken)
        #expect(memory.take("a", until: 100, at: 10) == .busy)
        memory.giveBack("a", until: 100)
        #expect(memory.take("a", until: 100, at: 11) == .taken)
        memory.keep("a")
        #expect(memory.take("a", until: 100, at: 100) == .seen)
        // It is not given back by whoever does not have it.
        memory.giveBack("a", until: 100)
        #expect(memory.take("a", until: 100, at: 100) == .seen)
        // The same id in a token that lives longer is the same id.
        #expect(memory.take("a", until: 200, at: 100) == .seen)
    }

    @Test func `F83: a full memory takes nobody, and forgets nobody who could come back`() {
        var memory = ReplayMemory(limit: 2)
        #expect(memory.take("a", until: 100, at: 10) == .taken)
        #expect(memory.take("b", until: 200, at: 10) == .taken)
        memory.keep("a")
        memory.keep("b")
        #expect(memory.take("c", until: 300, at: 100) == .full)
        #expect(memory.take("a", until: 100, at: 100) == .seen)
        // A second behind its end nothing takes the token of `a` any more.
        #expect(memory.take("c", until: 300, at: 101) == .taken)
        #expect(memory.count == 2)
        #expect(memory.take("b", until: 200, at: 101) == .seen)
    }

    @Test func `F83: what was forgotten is not taken again when the clock is set back`() {
        var memory = ReplayMemory(limit: 10)
        #expect(memory.take("a", until: 100, at: 10) == .taken)
        memory.keep("a")
        // A year ahead by mistake, and back.
        #expect(memory.take("b", until: 40_000_000, at: 31_536_000) == .taken)
        #expect(memory.take("a", until: 100, at: 20) == .tooOld)
        #expect(memory.take("new", until: 100, at: 20) == .tooOld)
        #expect(memory.take("new", until: 101, at: 20) == .taken)
        // And it goes on forgetting by the clock that it has.
        memory.keep("new")
        #expect(memory.take("newer", until: 300, at: 102) == .taken)
        #expect(memory.count == 2)
    }

    @Test func `ids that are given back leave nothing behind`() {
        var memory = ReplayMemory(limit: 2)
        for _ in 0..<1_000 {
            #expect(memory.take("a", until: 100, at: 10) == .taken)
            memory.giveBack("a", until: 100)
        }
        #expect(memory.count == 0)
        #expect(memory.take("a", until: 100, at: 10) == .taken)
        #expect(memory.take("b", until: 100, at: 10) == .taken)
        #expect(memory.take("c", until: 100, at: 10) == .full)
    }
}
