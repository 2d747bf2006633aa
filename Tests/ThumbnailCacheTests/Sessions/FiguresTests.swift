import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import ThumbnailCache

@Suite(.timeLimit(.minutes(5))) struct FiguresTests {
    @Test func `Hits that are told never become fewer, also while caches that had them end`() async throws {
        let daemon = Daemon(FakeWorld(lifecycle: ThreadPool(threads: 2)))
        let hasEnded = NIOLockedValueBox(false)
        let told = await withTaskGroup(of: [Int].self) { group in
            group.addTask {
                var told: [Int] = []
                while !hasEnded.withLockedValue({ $0 }) { told.append(daemon.sessions.figures(of: nil).memoryHits) }
                return told
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
                return []
            }
            return await group.reduce(into: []) { $0 += $1 }
        }
        #expect(zip(told, told.dropFirst()).allSatisfy { $0 <= $1 })
        #expect(daemon.sessions.figures(of: nil).memoryHits == 500)
    }
}
