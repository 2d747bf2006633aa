import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// A relay on a stream that loses entries, is restored, flushed and trimmed, while the relay is killed at any moment.
@Suite struct RandomHistoryTests {
    /// When a host acknowledges an entry, it has executed the entry, or logged out all users after its publication.
    @Test(arguments: 0..<2_000)
    func `I3: a host acknowledges a logout only after it has executed it`(seed: UInt64) {
        var host = FakeHost(seed: seed)
        for _ in 0..<60 { host.takeStep() }
        #expect(host.falseAcknowledgements == [])
        // Once the stream is no longer changed, the host reaches its end.
        for _ in 0..<20 { host.follow() }
        #expect(host.isAtEnd, "seed \(seed)")
        #expect(host.falseAcknowledgements == [])
    }

    @Test func `the checker detects a host that acknowledges without executing`() {
        var falseAcknowledgements = 0
        for seed in 0..<50 as Range<UInt64> {
            var host = FakeHost(seed: seed)
            host.skipsCommands = true
            for _ in 0..<60 { host.takeStep() }
            falseAcknowledgements += host.falseAcknowledgements.count
        }
        #expect(falseAcknowledgements > 0)
    }

    @Test func `the checker detects a host that ignores gaps`() {
        var falseAcknowledgements = 0
        for seed in 0..<200 as Range<UInt64> {
            var host = FakeHost(seed: seed)
            host.ignoresGaps = true
            for _ in 0..<60 { host.takeStep() }
            falseAcknowledgements += host.falseAcknowledgements.count
        }
        #expect(falseAcknowledgements > 0)
    }

    /// An entry that one host has executed reaches all hosts even if the server loses it.
    @Test(arguments: 0..<2_000)
    func `I4: an entry executed by one host takes effect on all hosts`(seed: UInt64) {
        var fleet = FakeFleet(seed: seed)
        for _ in 0..<80 { fleet.takeStep() }
        let isHealed = fleet.heal()
        #expect(isHealed, "seed \(seed)")
        #expect(fleet.forgotten == [], "seed \(seed)")
    }

    @Test func `the checker detects a relay that handles a loss only on its own host`() {
        var forgotten = 0
        for seed in 0..<200 as Range<UInt64> {
            var fleet = FakeFleet(seed: seed)
            fleet.handlesLossLocally = true
            for _ in 0..<80 { fleet.takeStep() }
            _ = fleet.heal()
            forgotten += fleet.forgotten.count
        }
        #expect(forgotten > 0)
    }
}
