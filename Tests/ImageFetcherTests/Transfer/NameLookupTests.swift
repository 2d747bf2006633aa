import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// Limits on concurrent name lookups, including abandoned ones.
@Suite(.timeLimit(.minutes(5))) struct NameLookupTests {
    private final class Clock {
        var now = NIODeadline.uptimeNanoseconds(0)
    }

    private let clock = Clock()

    private func lookups(all: Int = 1_000, perAccount: Int = 1_000) -> NameLookups {
        NameLookups(limits: .init(all: all, perAccount: perAccount)) { [clock] in clock.now }
    }

    private func lookup(
        _ all: NameLookups, account: UInt32 = 1, of origin: String = "a", maximum: Int = 1_000
    ) -> NameLookup {
        NameLookup(of: .init(account: account, origin: origin, maximum: maximum), among: all)
    }

    @Test func `I8: an abandoned lookup counts for the longest time of a resolver`() {
        let all = lookups(perAccount: 2)
        for _ in 0..<2 { #expect(lookup(all).begin()) }
        #expect(all.count == 2)
        let third = lookup(all)
        clock.now = .uptimeNanoseconds(0) + NameLookups.longest - .nanoseconds(1)
        #expect(!third.begin() && third.isRefused)
        clock.now = .uptimeNanoseconds(0) + NameLookups.longest
        #expect(third.begin() && !third.isRefused)
        #expect(all.count == 1)
    }

    @Test func `I8: a completed lookup no longer counts`() {
        let all = lookups(perAccount: 1)
        for _ in 0..<100 {
            let one = lookup(all)
            #expect(one.begin())
            one.end()
            one.end()
        }
        #expect(all.count == 0)
    }

    @Test func `F68, I8: lookups are limited per account and per origin`() {
        let all = lookups(all: 16, perAccount: 6)
        for _ in 0..<100 { _ = lookup(all, account: 1, of: "a").begin() }
        #expect(all.count == 6)
        // A name server that never responds to lookups for an origin's redirects.
        for account in 2..<100 as Range<UInt32> { _ = lookup(all, account: account, of: "b", maximum: 8).begin() }
        #expect(all.count == 14)
        // The last eighth is reserved for accounts without a lookup.
        #expect(!lookup(all, account: 2, of: "c").begin())
        #expect(lookup(all, account: 200, of: "c").begin())
    }

    @Test func `F68: lookups beyond the limit are BUSY and do not open the breaker`() async throws {
        try await withFetcher {
            $0.lookups = 0
        } _: { fetcher in
            var origin = Origin.test(url: "http://nobody.invalid/{profile}")
            origin.breaker = BreakerPolicy(failures: 1, backoff: 86_400_000, backoffMax: 86_400_000)
            for _ in 0..<2 {
                let outcome = await fetcher.outcome("http://nobody.invalid/a", of: origin)
                #expect(outcome.kind == "busy", "\(outcome)")
            }
            check(try await fetcher.token("http://nobody.invalid/token"), "busy")
            #expect(fetcher.statistics.hostsOpen == 0 && fetcher.statistics.accountsOpen == 0)
            // A literal address needs no lookup.
            let server = try TestOrigin()
            defer { server.stop() }
            let spelled = await fetcher.outcome(server.url("/a"))
            #expect(spelled.kind == "image")
        }
    }

    @Test func `I8: completed and failed lookups make room for the next`() async throws {
        let server = try TestOrigin()
        defer { server.stop() }
        try await withFetcher {
            $0.lookups = 1
        } _: { fetcher in
            var origin = Origin.test(url: "http://localhost/{profile}", allow: ["http://localhost:\(server.port)/"])
            origin.breaker = BreakerPolicy(failures: 1_000_000)
            for number in 0..<20 {
                let lost = await fetcher.outcome("http://nobody\(number).invalid/a", of: .test("lost\(number)"))
                #expect(lost.kind == "origin", "\(lost)")
                let found = await fetcher.outcome(server.url("/a", host: "localhost"), of: origin)
                #expect(found.kind == "image", "\(found)")
            }
        }
    }
}
