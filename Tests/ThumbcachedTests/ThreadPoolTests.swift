import Dispatch
import NIOConcurrencyHelpers
import Testing

@testable import thumbcached

@Suite(.timeLimit(.minutes(5))) struct ThreadPoolTests {
    @Test func `all that is submitted is done, from wherever it comes, before the stop returns`() async throws {
        let pool = try ThreadPool(threads: 3, named: "test")
        let count = NIOLockedValueBox(0)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<500 { pool.submit { count.withLockedValue { $0 += 1 } } }
                }
            }
        }
        await pool.stop()
        #expect(count.withLockedValue { $0 } == 4_000)
    }

    @Test func `one thread does work in the order of its submission`() async throws {
        let pool = try ThreadPool(threads: 1, named: "test")
        let order = NIOLockedValueBox<[Int]>([])
        for number in 0..<1_000 { pool.submit { order.withLockedValue { $0.append(number) } } }
        await pool.stop()
        #expect(order.withLockedValue { $0 } == Array(0..<1_000))
    }

    @Test func `as many are done at once as there are threads`() async throws {
        let pool = try ThreadPool(threads: 4, named: "test")
        let begun = DispatchSemaphore(value: 0)
        let gate = DispatchSemaphore(value: 0)
        for _ in 0..<4 {
            pool.submit {
                begun.signal()
                gate.wait()
            }
        }
        // Each waits for the gate, so all four have a thread.
        for _ in 0..<4 { #expect(waits(begun)) }
        for _ in 0..<4 { gate.signal() }
        await pool.stop()
    }

    @Test func `what comes after the stop is done by whoever brings it, and a second stop is nothing`() async throws {
        let pool = try ThreadPool(threads: 2, named: "test")
        await pool.stop()
        let isDone = NIOLockedValueBox(false)
        pool.submit { isDone.withLockedValue { $0 = true } }
        #expect(isDone.withLockedValue { $0 })
        await pool.stop()
    }

    @Test func `work that begets work is followed to its end by a stop that was asked for meanwhile`() async throws {
        let pool = try ThreadPool(threads: 2, named: "test")
        let count = NIOLockedValueBox(0)
        @Sendable func beget() {
            let number = count.withLockedValue { count in
                count += 1
                return count
            }
            if number < 1_000 { pool.submit(beget) }
        }
        pool.submit(beget)
        await pool.stop()
        #expect(count.withLockedValue { $0 } == 1_000)
    }

    private func waits(_ semaphore: DispatchSemaphore) -> Bool {
        semaphore.wait(timeout: .now() + .seconds(60)) == .success
    }
}
