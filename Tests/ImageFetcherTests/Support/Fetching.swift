import CacheFakes
import Foundation
import HelperProtocol
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import ImageFetcher
@testable import Origins

/// Runs `body` with a fetcher, which is shut down afterwards.
func withFetcher(
    _ configure: (inout FetcherSetup) -> Void = { _ in }, _ body: (CurlImageFetcher) async throws -> Void
) async throws {
    let fetcher = makeFetcher(configure)
    try fetcher.start()
    defer { fetcher.shutdown() }
    try await body(fetcher)
}

/// Runs `body` with an origin and a fetcher, which are stopped afterwards.
/// - Parameter scripts: the responses by path.
func withOrigin(
    _ scripts: [String: TestOrigin.Script] = [:], _ body: (TestOrigin, CurlImageFetcher) async throws -> Void
) async throws {
    let server = try TestOrigin(scripts)
    defer { server.stop() }
    try await withFetcher { try await body(server, $0) }
}

/// Creates a fetcher without starting it.
func makeFetcher(_ configure: (inout FetcherSetup) -> Void) -> CurlImageFetcher {
    HostileEnvironment.prepare()
    var setup = FetcherSetup()
    configure(&setup)
    return CurlImageFetcher(
        settings: setup.settings, environment: setup.environment,
        log: Logger(label: "tests", factory: { _ in SwiftLogNoOpLogHandler() }))
}

/// The settings and environment of a test's fetcher, accessible as properties of this type.
@dynamicMemberLookup struct FetcherSetup {
    var settings = FetcherSettings(version: "tests", logLevel: "info")
    var environment = FetcherEnvironment()

    subscript<Value>(dynamicMember property: WritableKeyPath<FetcherSettings, Value>) -> Value {
        get { settings[keyPath: property] }
        set { settings[keyPath: property] = newValue }
    }

    subscript<Value>(dynamicMember property: WritableKeyPath<FetcherEnvironment, Value>) -> Value {
        get { environment[keyPath: property] }
        set { environment[keyPath: property] = newValue }
    }
}

extension FetcherSetup {
    /// Blocks the fetcher's thread at the gate whenever it prepares a request.
    mutating func hold(at gate: Gate) {
        // Called on the fetcher's thread.
        environment.resolverOverrides = {
            gate.pass()
            return []
        }
    }
}

extension Origin {
    /// A template that ``at(_:)`` replaces by the URL of the test's download.
    static let anywhere = "http://127.0.0.1/{profile}"

    /// An origin that may have private addresses and be arbitrarily slow.
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

    /// The origin with a template of the URL's scheme, host and port, unless it has a template of its own.
    func at(_ url: String) -> Origin {
        guard self.url == Self.anywhere else { return self }
        var origin = self
        origin.url = DownloadTarget.authority(of: url) + "/{profile}"
        return origin
    }
}

extension Download {
    static func test(_ url: String, of origin: Origin = .test(), account: UInt32 = 1) -> Download {
        Download(
            account: account, origin: origin.at(url), target: DownloadTarget(url: url, isNamedByClient: false),
            token: nil, framing: .bare)
    }
}

extension CurlImageFetcher {
    func start(
        _ download: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) throws(FetchFailure) -> any DownloadHandle {
        try start(.download(download)) { outcome in
            guard case .download(let outcome) = outcome else { Issue.record("\(outcome)"); return }
            onEnd(outcome)
        }
    }

    func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, FetchFailure>) -> Void
    ) throws(FetchFailure) -> any DownloadHandle {
        try start(TransferJob(request)) { outcome in
            guard case .token(let result) = outcome else { Issue.record("\(outcome)"); return }
            onEnd(result)
        }
    }

    /// Downloads a URL and waits for the outcome. A second outcome traps, because it resumes a continuation twice.
    func fetch(
        _ url: String, of origin: Origin = .test(), account: UInt32 = 1000, isNamedByClient: Bool = false,
        token: Secret? = nil, condition: DownloadCondition? = nil, framing: ReplyFraming = .bare
    ) async throws -> DownloadOutcome {
        try await fetch(
            DownloadTarget(url: url, isNamedByClient: isNamedByClient), of: origin.at(url), account: account,
            token: token,
            condition: condition, framing: framing)
    }

    /// Downloads a target and waits for the outcome.
    func fetch(
        _ target: DownloadTarget, of origin: Origin, account: UInt32 = 1000, token: Secret? = nil,
        condition: DownloadCondition? = nil, framing: ReplyFraming = .bare
    ) async throws -> DownloadOutcome {
        try await withCheckedThrowingContinuation { continuation in
            do {
                _ = try start(
                    Download(
                        account: account, origin: origin, target: target, token: token, condition: condition,
                        framing: framing)
                ) { continuation.resume(returning: $0) }
            } catch {
                continuation.resume(throwing: error)
            }
        }
    }
}

extension CurlImageFetcher {
    /// The outcome of a download; a download that is not accepted counts as failed.
    func outcome(
        _ url: String, of origin: Origin = .test(), account: UInt32 = 1000, isNamedByClient: Bool = false,
        token: String? = nil
    ) async -> DownloadOutcome {
        do {
            return try await fetch(
                url, of: origin, account: account, isNamedByClient: isNamedByClient,
                token: token.map { Secret($0.utf8) })
        } catch let failure as FetchFailure {
            return .failed(failure)
        } catch {
            Issue.record(error)
            return .failed(.shuttingDown)
        }
    }
}

extension DownloadOutcome {
    /// Whether an open circuit breaker rejected the request, so that nothing was sent.
    var isRejected: Bool { failure?.kind == .circuitOpen }

    var image: DownloadedImage? { if case .image(let image) = self { image } else { nil } }
    var failure: FetchFailure? {
        switch self {
        case .failed(let failure), .unusable(let failure, _): failure
        case .image, .missing, .notModified: nil
        }
    }
    /// Whether the response is remembered, because it is definite.
    var isDefinite: Bool { if case .unusable = self { true } else { false } }
    var missing: ResponseHeaders? { if case .missing(let headers) = self { headers } else { nil } }
    var notModified: ResponseHeaders? { if case .notModified(let headers) = self { headers } else { nil } }
    var imageBytes: [UInt8]? { image.map { Array($0.bytes.image.readableBytesView) } }

    /// The kind of failure, "image", "missing" or "not modified", for comparisons. An open circuit breaker is "origin",
    /// as for clients; see ``isRejected``.
    /// for clients; see ``isRejected``.
    var kind: String {
        switch self {
        case .image: "image"
        case .missing: "missing"
        case .notModified: "not modified"
        case .unusable(let failure, _), .failed(let failure):
            failure.kind == .circuitOpen ? "origin" : "\(failure.kind)"
        }
    }

    /// The reason of a failure; empty for other outcomes.
    var reason: String { failure?.reason ?? "" }
}

/// The environment of all fetcher tests: proxies that do not listen, and a home directory whose `.netrc` has a password
/// for loopback (F33).
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
            unlink(NSTemporaryDirectory() + "thumbcached-netrc-\(getpid())/.netrc")
            rmdir(NSTemporaryDirectory() + "thumbcached-netrc-\(getpid())")
        }
    }()

    /// Must be called before the first fetcher starts a thread that could read the environment concurrently.
    static func prepare() { _ = prepared }
}
