import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// Name lookups that fail, in a fetcher whose threads are confined like the program. The confinement must not look like
/// a shortage of resources.
@Suite(.timeLimit(.minutes(5))) struct ConfinedFetcherTests {
    /// The fetcher's thread and its resolver threads inherit the confinement of the thread that starts it.
    private func withConfinedFetcher(
        _ configure: (inout FetcherSetup) -> Void = { _ in }, _ body: (CurlImageFetcher) async throws -> Void
    ) async throws {
        let fetcher = makeFetcher(configure)
        let result = NIOLockedValueBox<Result<Void, any Error>?>(nil)
        let thread = try startThread(named: "confined") {
            let start = Result {
                _ = try Confinement(readable: ["/etc", "/usr", "/lib", "/lib64"], writable: [], sockets: .internet)
                    .apply()
                try fetcher.start()
            }
            result.withLockedValue { $0 = start }
        }
        pthread_join(thread, nil)
        try #require(result.withLockedValue { $0 }).get()
        defer { fetcher.shutdown() }
        try await body(fetcher)
    }

    private func origin() -> Origin {
        var origin = Origin.test(url: "https://nobody.invalid/avatar/{profile}")
        origin.breaker = BreakerPolicy(failures: 1, backoff: 86_400_000, backoffMax: 86_400_000)
        return origin
    }

    @Test func `F37: a name that does not resolve is the host's failure`() async throws {
        try await withConfinedFetcher { fetcher in
            let outcome = await fetcher.outcome("https://nobody.invalid/avatar/bob", of: origin())
            #expect(outcome.kind == "origin", "\(outcome)")
            #expect(fetcher.statistics.hostsOpen == 1)
        }
    }

    @Test(arguments: [
        (EMFILE, true), (ENFILE, true), (ENOBUFS, true), (ENOMEM, true), (EAFNOSUPPORT, false), (EPERM, false),
        (EACCES, false),
    ])
    func `F15: a missing permission is not a shortage of descriptors`(code: CInt, isShortage: Bool) {
        #expect(DescriptorShortage.isShortage(code) == isShortage)
    }

    @Test func `F37, F86: a failing name server is a failure of the domain`() async throws {
        let names = try TestNameServer { _ in .code(5) }
        defer { names.stop() }
        try await withConfinedFetcher {
            $0.nameServers = names.address
        } _: { fetcher in
            let target = DownloadTarget(
                url: "https://nobody.invalid/avatar/bob", isNamedByClient: false, federatedDomain: "friends.example")
            let outcome = try await fetcher.fetch(target, of: origin())
            #expect(outcome.kind == "origin" && outcome.reason.contains("the address's domain"), "\(outcome)")
            #expect(fetcher.statistics.hostsOpen == 1)
        }
    }
}
