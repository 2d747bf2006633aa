import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// A relay over a stream that loses its end, is restored, flushed and trimmed, while the relay is killed at any moment.
@Suite struct RandomHistoryTests {
    /// What a host acknowledges is true, whatever happened before: the entry was carried out there, or everybody was
    /// logged out there after it was published.
    @Test(arguments: 0..<2_000)
    func `I3: a host that acknowledges a log-out has done it`(seed: UInt64) {
        var host = PlayedHost(seed: seed)
        for _ in 0..<60 { host.takeStep() }
        #expect(host.lies == [])
        // Nothing stands still for ever: with the stream left alone it comes to its end.
        for _ in 0..<20 { host.follow() }
        #expect(host.isAtEnd, "seed \(seed)")
        #expect(host.lies == [])
    }

    @Test func `the checker sees a host that acknowledges what it has not done`() {
        var lies = 0
        for seed in 0..<50 as Range<UInt64> {
            var host = PlayedHost(seed: seed)
            host.skipsOrders = true
            for _ in 0..<60 { host.takeStep() }
            lies += host.lies.count
        }
        #expect(lies > 0)
    }

    @Test func `the checker sees a host that takes no notice of gaps`() {
        var lies = 0
        for seed in 0..<200 as Range<UInt64> {
            var host = PlayedHost(seed: seed)
            host.ignoresGaps = true
            for _ in 0..<60 { host.takeStep() }
            lies += host.lies.count
        }
        #expect(lies > 0)
    }

    /// What one host has done every host does, whatever the server loses: who has done it remembers.
    @Test(arguments: 0..<2_000)
    func `I4: what one host has done is true on all when they are back`(seed: UInt64) {
        var fleet = PlayedFleet(seed: seed)
        for _ in 0..<80 { fleet.takeStep() }
        let isHealed = fleet.heal()
        #expect(isHealed, "seed \(seed)")
        #expect(fleet.forgotten == [], "seed \(seed)")
    }

    @Test func `the checker sees a relay that keeps to itself what the stream has lost`() {
        var forgotten = 0
        for seed in 0..<200 as Range<UInt64> {
            var fleet = PlayedFleet(seed: seed)
            fleet.keepsItToItself = true
            for _ in 0..<80 { fleet.takeStep() }
            _ = fleet.heal()
            forgotten += fleet.forgotten.count
        }
        #expect(forgotten > 0)
    }
}
