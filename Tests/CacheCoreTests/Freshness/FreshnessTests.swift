import Testing

@testable import CacheCore

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

    @Test func `the initial age counts (RFC 9111 section 4.2.3)`() {
        #expect(freshness.age(at: 1_010) == 15)
        #expect(freshness.timeToLive(at: 1_010) == 45)
        #expect(freshness.timeToLive(at: 1_065) == -10)
    }

    @Test func `F14: a clock that is set back between two starts neither keeps an image fresh forever nor discards it`()
    {
        for now in [999, 0, -31_536_000] as [Int64] {
            #expect(freshness.age(at: now) == 60)
            #expect(freshness.timeToLive(at: now) == 0)
            #expect(freshness.state(at: now) == .staleServable)
        }
        let strict = Freshness(storedAt: 1_000, lifetime: 60)
        #expect(strict.state(at: 999) == .expired)
        let old = Freshness(storedAt: 1_000, initialAge: 65, lifetime: 60, staleIfError: 30)
        #expect(old.age(at: 0) == 65)
        #expect(old.state(at: 0) == .staleOnError)
    }

    @Test func `F14: a clock that is set ahead makes images stale but servable during revalidation`() {
        let stale = Freshness(storedAt: 1_000, lifetime: 60, staleWhileRevalidate: 1 << 31, staleIfError: 1 << 31)
        #expect(stale.state(at: 1_000 + 31_536_000) == .staleServable)
    }

    @Test func `an image without a lifetime stays fresh`() {
        let put = Freshness(storedAt: 1_000, lifetime: nil)
        #expect(put.state(at: .max / 2) == .fresh)
        #expect(put.state(at: 0) == .fresh)
        #expect(put.age(at: 0) == 0)
        #expect(put.timeToLive(at: 2_000) == nil)
    }

    @Test func `an image with a lifetime of zero is stale at once`() {
        #expect(Freshness(storedAt: 1_000, lifetime: 0).state(at: 1_000) == .expired)
        #expect(Freshness(storedAt: 1_000, lifetime: 0, staleIfError: 1).state(at: 1_000) == .staleOnError)
    }

    @Test func `extreme numbers do not overflow`() {
        let longest = Freshness(
            storedAt: 0, initialAge: 1 << 31, lifetime: .max, staleWhileRevalidate: .max, staleIfError: .max)
        for now in [0, 1 << 40] as [Int64] { #expect(longest.state(at: now) == .fresh) }
        #expect(longest.state(at: -1 << 40) == .staleServable)
    }
}
