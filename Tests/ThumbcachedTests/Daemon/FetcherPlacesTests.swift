import Testing

@testable import thumbcached

/// Where a daemon that somebody started by hand finds the program that downloads for it.
@Suite struct FetcherPlacesTests {
    @Test(
        "The fetcher is looked for beside the daemon, and where it is installed below the same prefix",
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
    func places(directory: String, places: [String]) {
        #expect(Daemon.helperPlaces(of: "thumbcached-fetcher", for: directory) == places)
    }
}
