import Testing

@testable import ThumbnailCache

@Suite struct FreshnessTests {
    private let freshness = Freshness(
        storedAt: 1_000, initialAge: 5, lifetime: 60, staleWhileRevalidate: 10, staleIfError: 30)

    @Test(
        arguments: [
            (1_000, Freshness.State.fresh), (1_054, .fresh), (1_055, .staleServable), (1_064, .staleServable),
            (1_065, .staleOnError), (1_084, .staleOnError), (1_085, .expired), (1 << 40, .expired),
        ] as [(Int64, Freshness.State)])
    func `RFC 9111 section 4.2, RFC 5861 sections 3 and 4: an image ages through its states`(
        now: Int64, state: Freshness.State
    ) {
        #expect(freshness.state(at: now) == state)
    }

    @Test func `the age it came with counts (RFC 9111 section 4.2.3)`() {
        #expect(freshness.age(at: 1_010) == 15)
        #expect(freshness.timeToLive(at: 1_010) == 45)
        #expect(freshness.timeToLive(at: 1_065) == -10)
    }

    @Test func `F14: a clock set back makes an image young, never unborn, and leaves it no more life than it had`() {
        #expect(freshness.age(at: 0) == 5)
        #expect(freshness.timeToLive(at: 0) == 55)
        #expect(freshness.state(at: -1_000_000) == .fresh)
    }

    @Test func `without a lifetime it is fresh for ever`() {
        let put = Freshness(storedAt: 1_000, lifetime: nil)
        #expect(put.state(at: .max / 2) == .fresh)
        #expect(put.timeToLive(at: 2_000) == nil)
    }

    @Test func `a lifetime of zero is stale from the first second`() {
        #expect(Freshness(storedAt: 1_000, lifetime: 0).state(at: 1_000) == .expired)
        #expect(Freshness(storedAt: 1_000, lifetime: 0, staleIfError: 1).state(at: 1_000) == .staleOnError)
    }

    @Test func `numbers at the ends of their range do no harm`() {
        let longest = Freshness(
            storedAt: 0, initialAge: 1 << 31, lifetime: .max, staleWhileRevalidate: .max, staleIfError: .max)
        for now in [-1 << 40, 0, 1 << 40] as [Int64] { #expect(longest.state(at: now) == .fresh) }
    }
}
