import Testing

@testable import thumbcached

/// The paths at which a daemon without systemd expects the fetcher.
@Suite struct FetcherPlacesTests {
    @Test(
        arguments: [
            (
                "/home/alice/thumbcached/.build/debug",
                [
                    "/home/alice/thumbcached/.build/debug/thumbcached-fetcher",
                    "/home/alice/thumbcached/.build/libexec/thumbcached-fetcher",
                ]
            ),
            ("/usr/bin", ["/usr/bin/thumbcached-fetcher", "/usr/libexec/thumbcached-fetcher"]),
            ("/usr/local/bin", ["/usr/local/bin/thumbcached-fetcher", "/usr/local/libexec/thumbcached-fetcher"]),
        ])
    func `the fetcher is searched for next to the daemon and in libexec below the same prefix`(
        directory: String, places: [String]
    ) {
        #expect(Daemon.helperPlaces(of: "thumbcached-fetcher", for: directory) == places)
    }
}
