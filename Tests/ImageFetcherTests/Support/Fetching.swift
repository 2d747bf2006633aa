import Foundation
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import ImageFetcher
@testable import Origins

/// Runs `body` with a fetcher that is started and, at the end, shut down.
func withFetcher(
    _ configure: (inout FetcherConfiguration) -> Void = { _ in }, _ body: (CurlImageFetcher) async throws -> Void
) async throws {
    let fetcher = makeFetcher(configure)
    try fetcher.start()
    defer { fetcher.shutdown() }
    try await body(fetcher)
}

/// One that is to be started.
func makeFetcher(_ configure: (inout FetcherConfiguration) -> Void) -> CurlImageFetcher {
    HostileEnvironment.prepare()
    var configuration = FetcherConfiguration(userAgent: "thumbcached-tests")
    configure(&configuration)
    return CurlImageFetcher(
        configuration: configuration, log: Logger(label: "tests", factory: { _ in SwiftLogNoOpLogHandler() }))
}

extension FetcherConfiguration {
    /// Has the fetcher's thread open `stuck` when it sets a request up, and do nothing else until `release` is open.
    mutating func hold(at stuck: Gate, until release: Gate) {
        // Asked on the thread itself.
        resolverOverrides = {
            stuck.open()
            release.block()
            return []
        }
    }
}

extension Origin {
    /// The template of an origin that is wherever a test's download goes.
    static let anywhere = "http://127.0.0.1/{profile}"

    /// An origin of the name given that may be on loopback, that is at any speed.
    static func test(
        _ name: String = "test", url: String = anywhere, allow: [String] = [],
        private allowPrivateAddresses: Bool = true, timeout: Int64 = 600_000, connections: Int = 32
    ) -> Origin {
        var origin = Origin(
            name: name, url: url, allow: allow, allowPrivateAddresses: allowPrivateAddresses,
            connectTimeout: 600_000, timeout: timeout, connections: connections)
        origin.lowestSpeed = 0
        return origin
    }

    /// The origin with its template at the URL's scheme, host and port, unless it has one of its own.
    func at(_ url: String) -> Origin {
        guard self.url == Self.anywhere else { return self }
        var origin = self
        origin.url = WebURL.authority(ofNormalized: url) + "/{profile}"
        return origin
    }
}

extension CurlImageFetcher {
    /// Downloads one URL and waits for the outcome. A second outcome would trap, as a continuation does.
    func fetch(
        _ url: String, of origin: Origin = .test(), uid: UInt32 = 1000, isNamedByClient: Bool = false,
        token: Secret? = nil, condition: DownloadCondition? = nil, framing: ReplyFraming = .bare
    ) async throws -> DownloadOutcome {
        try await fetch(
            DownloadTarget(url: url, isNamedByClient: isNamedByClient), of: origin.at(url), uid: uid, token: token,
            condition: condition, framing: framing)
    }

    /// The same of a target that is more than a URL.
    func fetch(
        _ target: DownloadTarget, of origin: Origin, uid: UInt32 = 1000, token: Secret? = nil,
        condition: DownloadCondition? = nil, framing: ReplyFraming = .bare
    ) async throws -> DownloadOutcome {
        try await withCheckedThrowingContinuation { continuation in
            do {
                _ = try start(
                    Download(
                        uid: uid, origin: origin, target: target, token: token, condition: condition, framing: framing)
                ) { continuation.resume(returning: $0) }
            } catch {
                continuation.resume(throwing: error)
            }
        }
    }
}

extension CurlImageFetcher {
    /// The same, with a download that is not taken at all told apart by nothing: for its owner, both have failed.
    func outcome(
        _ url: String, of origin: Origin = .test(), uid: UInt32 = 1000, isNamedByClient: Bool = false,
        token: String? = nil
    ) async -> DownloadOutcome {
        do {
            return try await fetch(
                url, of: origin, uid: uid, isNamedByClient: isNamedByClient, token: token.map { Secret($0.utf8) })
        } catch let failure as CacheFailure {
            return .failed(failure)
        } catch {
            Issue.record(error)
            return .failed(.shuttingDown)
        }
    }
}

extension DownloadOutcome {
    /// Whether it failed because a circuit breaker was open, so that nothing was sent.
    var isRejected: Bool { sentence.contains("is not asked for") || sentence.contains("one request is finding out") }

    var image: DownloadedImage? { if case .image(let image) = self { image } else { nil } }
    var failure: CacheFailure? {
        switch self {
        case .failed(let failure), .unusable(let failure, _): failure
        case .image, .missing, .notModified: nil
        }
    }
    /// Whether the response is one that is remembered.
    var isDefinite: Bool { if case .unusable = self { true } else { false } }
    var missing: ResponseHeaders? { if case .missing(let headers) = self { headers } else { nil } }
    var notModified: ResponseHeaders? { if case .notModified(let headers) = self { headers } else { nil } }
    var imageBytes: [UInt8]? { image.map { Array($0.bytes.image.readableBytesView) } }

    /// The kind of failure, the image or "missing", for comparing outcomes by.
    var kind: String {
        switch self {
        case .image: "image"
        case .missing: "missing"
        case .notModified: "not modified"
        case .unusable(let failure, _), .failed(let failure):
            switch failure {
            case .timedOut: "timedOut"
            case .origin: "origin"
            case .unauthorized: "unauthorized"
            case .forbidden: "forbidden"
            case .denied: "denied"
            case .badImage: "badImage"
            case .tooLarge: "tooLarge"
            case .busy: "busy"
            case .shuttingDown: "shuttingDown"
            default: "\(failure)"
            }
        }
    }

    /// The sentence of a failure.
    var sentence: String {
        switch self {
        case .image, .missing, .notModified, .failed(.shuttingDown): ""
        case .unusable(let failure, _), .failed(let failure): "\(failure)"
        }
    }
}

/// The environment that every test of the fetcher runs in: proxies that nobody serves, and a home whose `.netrc` has a
/// password for loopback (F33).
enum HostileEnvironment {
    private static let prepared: Void = {
        let home = NSTemporaryDirectory() + "thumbcached-netrc-\(getpid())"
        do {
            try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
            try Data("machine 127.0.0.1 login somebody password leaked\n".utf8)
                .write(to: URL(fileURLWithPath: home + "/.netrc"))
        } catch {
            Issue.record(error)
        }
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            setenv(name, "http://127.0.0.1:1", 1)
        }
        setenv("HOME", home, 1)
        atexit {
            // Nobody is left to be told if it fails.
            unlink(NSTemporaryDirectory() + "thumbcached-netrc-\(getpid())/.netrc")
            rmdir(NSTemporaryDirectory() + "thumbcached-netrc-\(getpid())")
        }
    }()

    /// Once, before the first fetcher has a thread that could read the environment meanwhile.
    static func prepare() { _ = prepared }
}
