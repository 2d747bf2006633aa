import NIOConcurrencyHelpers
import Testing

@testable import ThumbnailCache

@Suite struct WriteBehindTests {
    /// Runs what it was given when it is told to, in its order.
    private final class Pool: BlockingPool {
        private let work = NIOLockedValueBox<[@Sendable () -> Void]>([])

        var count: Int { work.withLockedValue { $0.count } }

        func submit(_ work: @escaping @Sendable () -> Void) {
            self.work.withLockedValue { $0.append(work) }
        }

        /// The first of what waits now.
        func runOne() {
            let next = work.withLockedValue { $0.isEmpty ? nil : $0.removeFirst() }
            next?()
        }
    }

    private let pool = Pool()
    private let done = NIOLockedValueBox<[String]>([])

    private func work(_ name: String) -> @Sendable () -> Void {
        { [done] in done.withLockedValue { $0.append(name) } }
    }

    private var soFar: [String] { done.withLockedValue { $0 } }

    @Test func `images are written one at a time, in their order, each behind what others have to do`() {
        let writes = WriteBehind(pool: pool, capacity: 100)
        for name in ["a", "b", "c"] { writes.submit(bytes: 10, work(name)) }
        #expect(pool.count == 1)
        pool.submit(work("a look on disk"))
        pool.runOne()
        #expect(soFar == ["a"])
        // The second stands behind the look that came before it was its turn.
        pool.runOne()
        #expect(soFar == ["a", "a look on disk"])
        for _ in 0..<2 { pool.runOne() }
        #expect(soFar == ["a", "a look on disk", "b", "c"])
        #expect(pool.count == 0)
        writes.submit(bytes: 10, work("d"))
        pool.runOne()
        #expect(soFar.last == "d" && pool.count == 0)
    }

    @Test func `I8: what waits to be written is bounded, and over that whoever brings an image writes it`() {
        let writes = WriteBehind(pool: pool, capacity: 25)
        writes.submit(bytes: 10, work("a"))
        writes.submit(bytes: 15, work("b"))
        #expect(soFar == [])
        writes.submit(bytes: 1, work("c"))
        #expect(soFar == ["c"])
        pool.runOne()
        // There is room again, also for what is larger than what is left behind.
        writes.submit(bytes: 10, work("d"))
        #expect(soFar == ["c", "a"])
        for _ in 0..<2 { pool.runOne() }
        #expect(soFar == ["c", "a", "b", "d"])
    }

    @Test func `what is larger than all that may wait is written at once`() {
        let writes = WriteBehind(pool: pool, capacity: 25)
        writes.submit(bytes: 26, work("large"))
        #expect(soFar == ["large"] && pool.count == 0)
    }

    @Test func `an image that comes while another is written is written too`() {
        let writes = WriteBehind(pool: pool, capacity: 100)
        let later = work("later")
        writes.submit(bytes: 10) { writes.submit(bytes: 10, later) }
        for _ in 0..<2 { pool.runOne() }
        #expect(soFar == ["later"] && pool.count == 0)
    }
}
