import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

@Suite struct BackgroundYieldTests {
    /// A processor that others share: each time that way is given they take so long.
    private final class Processor: Sendable {
        private let state = NIOLockedValueBox((now: Int64(0), taken: Int64(0), yields: 0))

        var now: Int64 { state.withLockedValue { $0.now } }
        var yields: Int { state.withLockedValue { $0.yields } }

        func othersTake(_ nanoseconds: Int64) { state.withLockedValue { $0.taken = nanoseconds } }

        func work(_ nanoseconds: Int64) { state.withLockedValue { $0.now += nanoseconds } }

        func giveWay() {
            state.withLockedValue { state in
                state.now += state.taken
                state.yields += 1
            }
        }
    }

    private let processor = Processor()
    private let backgroundYield: BackgroundYield

    init() {
        backgroundYield = BackgroundYield(
            now: { [processor] in processor.now }, giveWay: { [processor] in processor.giveWay() })
    }

    /// Works in steps of 20 µs and gives way after each. Returns how many there were.
    private func steps(until end: Int64) -> Int {
        var steps = 0
        while processor.now < end {
            processor.work(20_000)
            backgroundYield.yield()
            steps += 1
        }
        return steps
    }

    @Test func `an event loop that has a hit to answer goes first after each step`() {
        processor.othersTake(20_000)
        let steps = steps(until: 1_000_000_000)
        #expect(steps == 25_000 && processor.yields == steps)
    }

    @Test(arguments: [3, 12, 30] as [Int64])
    func `beside programs that compute a share of each of their turns is left, so that what is to be done ends`(
        turn: Int64
    ) {
        processor.othersTake(turn * 1_000_000)
        let steps = steps(until: 10_000_000_000)
        // Milliseconds of each turn of theirs.
        let own = min(Double(turn) / 4, 2)
        let share = Double(steps * 20_000) / 10_000_000_000
        #expect(share >= 0.95 * own / (Double(turn) + own))
        #expect(share <= 1.10 * own / (Double(turn) + own))
    }

    @Test func `two who yield for each other do not go on for milliseconds, each since the other does`() {
        var taken: Int64 = 4_000_000
        for _ in 0..<3 {
            let began = processor.now
            processor.othersTake(taken)
            backgroundYield.yield()
            processor.othersTake(0)
            let yields = processor.yields
            while processor.yields == yields {
                processor.work(20_000)
                backgroundYield.yield()
            }
            // So long the other one waits now.
            taken = processor.now - began - taken
        }
        #expect(taken <= 20_000)
    }

    @Test func `once they are gone, everything is as before`() {
        processor.othersTake(5_000_000)
        backgroundYield.yield()
        processor.othersTake(0)
        backgroundYield.yield()
        #expect(processor.yields == 1)
        processor.work(5_000_000 / 4)
        backgroundYield.yield()
        backgroundYield.yield()
        #expect(processor.yields == 3)
    }
}
