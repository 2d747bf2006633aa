import Testing

@testable import CacheCore

@Suite struct EpochsTests {
    @Test func `an epoch grows with every event of its uid, independently of other uids`() {
        let epochs = Epochs(base: 3 << 32)
        #expect(epochs.current(of: 1) == 3 << 32)
        let numbers = (0..<5).map { _ in epochs.next(of: 1) }
        #expect(numbers == (1...5).map { 3 << 32 + $0 })
        #expect(epochs.current(of: 1) == numbers.last)
        #expect(epochs.next(of: 2) == 3 << 32 + 1)
    }

    @Test func `an epoch after a restart is larger than all earlier ones`() {
        let earlier = Epochs(base: 3 << 32)
        for _ in 0..<1_000 { _ = earlier.next(of: 1) }
        #expect(Epochs(base: 4 << 32).current(of: 1) > earlier.current(of: 1))
    }

    @Test func `epochs stay below 2^53 until the last possible start, so that RESP clients can represent them`() {
        #expect(Epochs(base: 1 << 52).next(of: 1) < 1 << 53)
    }
}
