import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import ThumbnailCache

@Suite(.timeLimit(.minutes(1))) struct TurnstileTests {
    @Test func `one at a time, in the order they came`() async throws {
        let turnstile = Turnstile()
        let log = EventLog()
        let first = Checkpoint()
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                await turnstile.withTurn {
                    log.record("first in")
                    await first.pass()
                    log.record("first out")
                }
            }
            await first.reached()
            for number in 0..<20 {
                group.addTask {
                    await turnstile.withTurn {
                        log.record("\(number) in")
                        await Task.yield()
                        log.record("\(number) out")
                    }
                }
                // Whoever is in line is in line before the next one comes.
                while turnstile.waiting < number + 1 {
                    try await turn()
                }
            }
            first.open()
            try await group.waitForAll()
        }
        #expect(log.events == ["first in", "first out"] + (0..<20).flatMap { ["\($0) in", "\($0) out"] })
        #expect(turnstile.waiting == 0)
    }

    @Test func `whoever throws passes the turn on`() async {
        struct Refused: Error {}
        let turnstile = Turnstile()
        await #expect(throws: Refused.self) { try await turnstile.withTurn { throw Refused() } }
        #expect(await turnstile.withTurn { 5 } == 5)
    }

    @Test func `of many at once none is in while another is`() async {
        let turnstile = Turnstile()
        let inside = NIOLockedValueBox((now: 0, most: 0, total: 0))
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<200 {
                group.addTask {
                    await turnstile.withTurn {
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
