import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct FiguresTests {
    @Test func `Hits that are told never become fewer, also while caches that had them end`() async throws {
        let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 2)))
        let hasEnded = NIOLockedValueBox(false)
        let haveFallen = await withTaskGroup(of: Bool.self) { group in
            group.addTask {
                var (last, haveFallen) = (0, false)
                while !hasEnded.withLockedValue({ $0 }), !Task.isCancelled {
                    let told = daemon.sessions.figures(of: nil).memoryHits
                    haveFallen = haveFallen || told < last
                    last = told
                    await Task.yield()
                }
                return haveFallen
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
        #expect(!haveFallen)
        #expect(daemon.sessions.figures(of: nil).memoryHits == 500)
    }
}
