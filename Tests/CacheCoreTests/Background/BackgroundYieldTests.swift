import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

@Suite struct BackgroundYieldTests {
    /// A clock whose `giveWay` advances by the time that other threads run.
    private final class Processor: Sendable {
        private let state = NIOLockedValueBox((now: Int64(0), othersTime: Int64(0), yields: 0))

        var now: Int64 { state.withLockedValue { $0.now } }
        var yields: Int { state.withLockedValue { $0.yields } }

        func setOthersTime(_ nanoseconds: Int64) { state.withLockedValue { $0.othersTime = nanoseconds } }

        func work(_ nanoseconds: Int64) { state.withLockedValue { $0.now += nanoseconds } }

        func giveWay() {
            state.withLockedValue { state in
                state.now += state.othersTime
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

    /// Works in steps of 20 µs and yields after each. Returns the number of steps.
    private func steps(until end: Int64) -> Int {
        var steps = 0
        while processor.now < end {
            processor.work(20_000)
            backgroundYield.yield()
            steps += 1
        }
        return steps
    }

    @Test func `an event loop with a hit to serve runs after each step`() {
        processor.setOthersTime(20_000)
        let steps = steps(until: 1_000_000_000)
        #expect(steps == 25_000 && processor.yields == steps)
    }

    @Test(arguments: [3, 12, 30] as [Int64])
    func `other busy programs leave the background thread its share of the processor`(
        turn: Int64
    ) {
        processor.setOthersTime(turn * 1_000_000)
        let steps = steps(until: 10_000_000_000)
        // The processor time in milliseconds between two time slices of the other program.
        let own = min(Double(turn) / 4, 2)
        let share = Double(steps * 20_000) / 10_000_000_000
        #expect(share >= 0.95 * own / (Double(turn) + own))
        #expect(share <= 1.10 * own / (Double(turn) + own))
    }

    @Test func `two yielding threads do not extend each other's time without yields`() {
        var othersTime: Int64 = 4_000_000
        for _ in 0..<3 {
            let began = processor.now
            processor.setOthersTime(othersTime)
            backgroundYield.yield()
            processor.setOthersTime(0)
            let yields = processor.yields
            while processor.yields == yields {
                processor.work(20_000)
                backgroundYield.yield()
            }
            // The other thread's waiting time in the next round.
            othersTime = processor.now - began - othersTime
        }
        #expect(othersTime <= 20_000)
    }

    @Test func `after the other programs end, every step yields again`() {
        processor.setOthersTime(5_000_000)
        backgroundYield.yield()
        processor.setOthersTime(0)
        backgroundYield.yield()
        #expect(processor.yields == 1)
        processor.work(5_000_000 / 4)
        backgroundYield.yield()
        backgroundYield.yield()
        #expect(processor.yields == 3)
    }
}
