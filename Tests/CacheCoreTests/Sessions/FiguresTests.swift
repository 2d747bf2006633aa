import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct FiguresTests {
    @Test func `the total of hits never decreases, even while caches end`() async throws {
        let daemon = Daemon(FakeWorld(loginPool: ThreadPool(threads: 2)))
        let hasEnded = NIOLockedValueBox(false)
        let hasDecreased = await withTaskGroup(of: Bool.self) { group in
            group.addTask {
                var (last, hasDecreased) = (0, false)
                while !hasEnded.withLockedValue({ $0 }), !Task.isCancelled {
                    let hits = daemon.sessions.figures(of: nil).memoryHits
                    hasDecreased = hasDecreased || hits < last
                    last = hits
                    await Task.yield()
                }
                return hasDecreased
            }
            group.addTask {
                for _ in 0..<500 {
                    do {
                        try await daemon.logIn(.alice)
                        try await daemon.put(.alice, "bob", "mine")
                        _ = await daemon.get(.alice, "bob")
                        _ = try await daemon.logOut(.alice)
                    } catch {
                        Issue.record(error)
                    }
                }
                hasEnded.withLockedValue { $0 = true }
                return false
            }
            return await group.contains(true)
        }
        #expect(!hasDecreased)
        #expect(daemon.sessions.figures(of: nil).memoryHits == 500)
    }
}
