import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct AsyncFIFOLockTests {
    @Test func `tasks hold the lock one at a time, in the order of their calls`() async throws {
        let lock = AsyncFIFOLock()
        let log = EventLog()
        let first = Gate()
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                await lock.withLock {
                    log.record("first in")
                    first.arrive()
                    await first.opened()
                    log.record("first out")
                }
            }
            await first.reached()
            for number in 0..<20 {
                group.addTask {
                    await lock.withLock {
                        log.record("\(number) in")
                        await Task.yield()
                        log.record("\(number) out")
                    }
                }
                // The next task starts only after this one waits.
                while lock.waiting < number + 1 {
                    try await yieldTask()
                }
            }
            first.open()
            try await group.waitForAll()
        }
        #expect(log.events == ["first in", "first out"] + (0..<20).flatMap { ["\($0) in", "\($0) out"] })
        #expect(lock.waiting == 0)
    }

    @Test func `an error releases the lock`() async {
        struct Refused: Error {}
        let lock = AsyncFIFOLock()
        await #expect(throws: Refused.self) { try await lock.withLock { throw Refused() } }
        #expect(await lock.withLock { 5 } == 5)
    }

    @Test func `no two of many tasks hold the lock at once`() async {
        let lock = AsyncFIFOLock()
        let inside = NIOLockedValueBox((now: 0, most: 0, total: 0))
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<200 {
                group.addTask {
                    await lock.withLock {
                        inside.withLockedValue { inside in
                            inside.now += 1
                            inside.total += 1
                            inside.most = max(inside.most, inside.now)
                        }
                        await Task.yield()
                        inside.withLockedValue { $0.now -= 1 }
                    }
                }
            }
        }
        #expect(inside.withLockedValue { $0.most } == 1)
        #expect(inside.withLockedValue { $0.total } == 200)
    }
}
