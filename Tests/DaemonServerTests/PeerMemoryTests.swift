import NIOConcurrencyHelpers
import Testing

@testable import DaemonServer

/// What the connections of one uid may hold together, and the line of those who wait for it (I8).
@Suite struct PeerMemoryTests {
    private let memory = PeerMemory()
    private let granted = NIOLockedValueBox<[UInt64]>([])

    private func wait(for count: Int, limit: Int = 100, isFirst: Bool = false) -> UInt64 {
        memory.wait(for: count, limit: limit, isFirst: isFirst) { id in
            granted.withLockedValue { $0.append(id) }
        }
    }

    private func seen() -> [UInt64] { granted.withLockedValue { $0 } }

    @Test func `I8: so many bytes are taken and no more, until some are given back`() {
        #expect(memory.take(60, limit: 100))
        #expect(!memory.take(41, limit: 100))
        #expect(memory.take(40, limit: 100))
        #expect(!memory.take(1, limit: 100))
        memory.give(10)
        #expect(memory.take(10, limit: 100))
        // What is there already counts, room or not; a connection of before a reload has a limit of its own.
        memory.add(20)
        #expect(memory.bytes == 120)
        #expect(!memory.take(1, limit: 120))
        #expect(memory.take(1, limit: 121))
    }

    @Test func `I8: those who wait have it in the order they came, however little the next one wants`() {
        memory.add(100)
        let first = wait(for: 50)
        let second = wait(for: 10)
        #expect(memory.waiting == 2)
        memory.give(20)
        #expect(seen().isEmpty)
        memory.give(30)
        #expect(seen() == [first])
        memory.give(10)
        #expect(seen() == [first, second])
        #expect(memory.waiting == 0 && memory.bytes == 100)
    }

    @Test func `I8: who is next and needs less by now is not held up by what it claimed before`() {
        memory.add(60)
        let (first, second) = (wait(for: 50), wait(for: 30))
        #expect(!memory.takeInTurn(20, limit: 100, claim: second))
        #expect(memory.takeInTurn(30, limit: 100, claim: first))
        memory.leave(first)
        #expect(seen().isEmpty && memory.waiting == 1 && memory.bytes == 90)
    }

    @Test func `I8: who has begun what others wait for the end of comes first, in the order of coming`() {
        memory.add(90)
        let first = wait(for: 50)
        #expect(!memory.takeInTurn(5, limit: 100, claim: nil))
        #expect(memory.take(5, limit: 100))
        memory.add(5)
        let begun = [wait(for: 5, isFirst: true), wait(for: 3, isFirst: true)]
        memory.give(5)
        #expect(seen() == [begun[0]])
        memory.give(100)
        #expect(seen() == begun + [first])
        #expect(memory.takeInTurn(5, limit: 100, claim: nil))
    }

    @Test func `what there is room for is granted to who waits at once`() {
        let id = wait(for: 100)
        #expect(seen() == [id] && memory.bytes == 100)
        memory.leave(id)
        #expect(memory.bytes == 100)
    }

    @Test func `who leaves the line holds up nobody`() {
        memory.add(60)
        let large = wait(for: 50)
        let small = wait(for: 40)
        #expect(seen().isEmpty)
        memory.leave(large)
        #expect(seen() == [small] && memory.waiting == 0)
    }

    @Test func `I8: whoever gives back and whoever joins the line at the same time find each other`() async {
        let memory = memory
        let count = 2_000
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<count {
                        if !memory.takeInTurn(40, limit: 100, claim: nil) {
                            await withCheckedContinuation { continuation in
                                _ = memory.wait(for: 40, limit: 100, isFirst: false) { _ in continuation.resume() }
                            }
                        }
                        memory.give(40)
                    }
                }
            }
        }
        #expect(memory.bytes == 0 && memory.waiting == 0)
    }
}
