import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import thumbcached

/// Fair division of threads between uids (I8, F66).
@Suite struct FairPoolTests {
    private let clock = NIOLockedValueBox<Int64>(0)

    private func pool(threads: Int) throws -> FairPool {
        try FairPool(named: "test", threads: threads) { [clock] in clock.withLockedValue { $0 } }
    }

    @Test func `work of one uid runs in order`() throws {
        let pool = try pool(threads: 1)
        let done = NIOLockedValueBox<[Int]>([])
        for number in 0..<100 { pool.submit(for: 1) { done.withLockedValue { $0.append(number) } } }
        pool.stop()
        #expect(done.withLockedValue { $0 } == Array(0..<100))
    }

    @Test func `F66: a uid that blocks its threads leaves one to other uids`() async throws {
        let pool = try pool(threads: 4)
        defer { pool.stop() }
        let gate = Gate()
        for _ in 0..<10 { pool.submit(for: 1) { gate.pass() } }
        await gate.reached(by: 2)
        // Completes only if a thread is free.
        try await pool.run(for: 2) {}
        #expect(gate.arrived == 2)
        gate.open()
    }

    @Test func `a pool may let one uid use all threads`() async throws {
        let pool = try FairPool(named: "test", threads: 2, perAccount: 2) { 0 }
        defer { pool.stop() }
        let gate = Gate()
        for _ in 0..<2 { pool.submit(for: 1) { gate.pass() } }
        await gate.reached(by: 2)
        gate.open()
    }

    @Test func `F66: after many pieces of work of one uid, another uid has the next turn`() async throws {
        let pool = try pool(threads: 1)
        let gate = Gate()
        let done = NIOLockedValueBox<[UInt32]>([])
        pool.submit(for: 1) { gate.pass() }
        await gate.reached(by: 1)
        for uid in [1, 1, 1, 1, 1, 1, 2] as [UInt32] {
            pool.submit(for: uid) { [clock] in
                clock.withLockedValue { $0 += 100_000 }
                done.withLockedValue { $0.append(uid) }
            }
        }
        gate.open()
        pool.stop()
        let order = done.withLockedValue { $0 }
        #expect(order.count == 7 && order.prefix(2).contains(2))
    }

    @Test func `F66: turns have the same duration`() async throws {
        let pool = try pool(threads: 1)
        let gate = Gate()
        let done = NIOLockedValueBox<[UInt32]>([])
        pool.submit(for: 3) { gate.pass() }
        await gate.reached(by: 1)
        for _ in 0..<4 {
            pool.submit(for: 1) { [clock] in
                clock.withLockedValue { $0 += 5_000_000 }
                done.withLockedValue { $0.append(1) }
            }
        }
        for _ in 0..<12 {
            pool.submit(for: 2) { [clock] in
                clock.withLockedValue { $0 += 1_000_000 }
                done.withLockedValue { $0.append(2) }
            }
        }
        gate.open()
        pool.stop()
        // 5 ms of one uid for five times 1 ms of the other.
        #expect((1...3).contains(done.withLockedValue { $0.prefix(9).count { $0 == 1 } }))
    }

    @Test func `work that is submitted after the end runs on the submitting thread`() async throws {
        let pool = try pool(threads: 2)
        pool.stop()
        pool.stop()
        #expect(try await pool.run(for: 1) { 7 } == 7)
    }

    @Test func `work that many threads submit runs exactly once`() async throws {
        let pool = try pool(threads: 4)
        let count = NIOLockedValueBox(0)
        await withTaskGroup(of: Void.self) { group in
            for uid in 0..<8 as Range<UInt32> {
                group.addTask {
                    for _ in 0..<500 {
                        await withCheckedContinuation { continuation in
                            pool.submit(for: uid) {
                                count.withLockedValue { $0 += 1 }
                                continuation.resume()
                            }
                        }
                    }
                }
            }
        }
        pool.stop()
        #expect(count.withLockedValue { $0 } == 4_000)
    }
}
