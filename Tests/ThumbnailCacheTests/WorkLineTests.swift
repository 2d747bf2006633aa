import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import ThumbnailCache

/// Work that is done one piece after another.
@Suite struct WorkLineTests {
    @Test func `pieces are done in their order, and one thread is woken for all that come while it works`() {
        let pool = GatedPool()
        let line = WorkLine(pool: pool)
        let done = NIOLockedValueBox<[Int]>([])
        line.add {
            // Comes while the thread works.
            line.add { done.withLockedValue { $0.append(2) } }
            done.withLockedValue { $0.append(0) }
        }
        line.add { done.withLockedValue { $0.append(1) } }
        #expect(pool.count == 1)
        pool.runNext()
        #expect(done.withLockedValue { $0 } == [0, 1, 2] && pool.count == 0)
        line.add { done.withLockedValue { $0.append(3) } }
        #expect(pool.count == 1)
        pool.runAll()
        #expect(done.withLockedValue { $0 } == [0, 1, 2, 3])
    }

    @Test func `every piece is done once, whoever adds it from wherever`() async {
        let line = WorkLine(pool: ThreadPool(threads: 3))
        let count = NIOLockedValueBox(0)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<500 {
                        await withCheckedContinuation { continuation in
                            line.add {
                                count.withLockedValue { $0 += 1 }
                                continuation.resume()
                            }
                        }
                    }
                }
            }
        }
        #expect(count.withLockedValue { $0 } == 4_000)
    }
}
