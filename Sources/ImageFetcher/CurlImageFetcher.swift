import CCurl
import CDNS
import CacheCore
import Glibc
import HelperProtocol
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Origins
import SocketLoops

/// Downloads images and renews access tokens with libcurl, on one thread of its own.
///
/// Reading order: ``OriginRules`` (which URL), ``TransferScheduler`` (whose turn), `TransferLoop` (the thread),
/// `Transfer` (one request after the other), `DownloadTransfer` and `ResponseReader` (an image), `ServiceLookups` (whom
/// a domain names for its addresses), `TokenTransfer` and `TokenAnswer` (an access token).
///
/// ``start()`` comes before the first download and ``shutdown()`` after the last; a fetcher that is dropped without it
/// leaves its thread behind.
public final class CurlImageFetcher {
    /// Token requests that are under way at once at most, beside the downloads. Each can take a socket and what its
    /// host is resolved with.
    public static var tokenRequestsAtOnce: Int { TokenTransfer.mostAtOnce }

    /// Sockets that a question of the domain's name server can take.
    public static var descriptorsPerQuestion: Int { 2 * Int(CDNS_MOST_SERVERS) }

    private let scheduler: TransferScheduler
    private let rulesCache = OriginRulesCache()
    private let log: Logger
    private let running = NIOLockedValueBox<SocketLoop?>(nil)

    /// That of the thread; nil while it does not run.
    package var loop: SocketLoop? { running.withLockedValue { $0 } }

    public init(configuration: FetcherConfiguration, log: Logger) {
        self.scheduler = TransferScheduler(configuration: configuration, log: log)
        self.log = log
    }

    /// Starts the thread. Throws when the system or libcurl lacks something, and when it was started before.
    public func start() throws(FetcherError) {
        // Counted by libcurl, and never undone: a resolver's thread that was left behind may still run in it.
        let code = ccurl_global_init()
        guard code == CURLE_OK else { throw FetcherError("libcurl: \(String(cString: curl_easy_strerror(code)))") }
        guard cdns_start() == 0 else { throw FetcherError("c-ares cannot be used") }
        let loop: SocketLoop
        do {
            loop = try SocketLoop(named: "downloads")
        } catch {
            throw FetcherError("\(error)")
        }
        do {
            let transfers = try loop.submit { [scheduler, rulesCache, log] in
                NIOLoopBound(
                    try TransferLoop(scheduler: scheduler, rulesCache: rulesCache, loop: loop, log: log),
                    eventLoop: loop)
            }.wait()
            guard scheduler.open(wake: { loop.execute { transfers.value.takeWork() } }) else {
                throw FetcherError("a fetcher is started once")
            }
            running.withLockedValue { $0 = loop }
        } catch {
            loop.end {}
            throw error as? FetcherError ?? FetcherError("\(error)")
        }
    }

    /// Ends every download with ``CacheFailure/shuttingDown`` and the thread after them. Returns when it has ended:
    /// idle connections are closed, and no `onEnd` runs any more. Idempotent; not to be called from an `onEnd`.
    public func shutdown() {
        scheduler.stop()
        guard let loop = running.withLockedValue({ $0.take() }) else { return }
        let hasEnded = Semaphore()
        loop.end(hasEnded.signal)
        hasEnded.wait()
    }

    /// Puts other limits in force, for downloads that begin from now on.
    public func update(_ configuration: FetcherConfiguration) {
        scheduler.update(configuration)
    }

    /// Calls `sign` from the fetcher's thread when it next comes round, which a thread that is stuck does not; at once
    /// where it does not run, since nothing is stuck then. `sign` must not block.
    public func whenAlive(_ sign: @escaping @Sendable () -> Void) {
        scheduler.whenAlive(sign)
    }

    package var statistics: FetcherStatistics { scheduler.statistics(at: .now()) }

    public func start(
        _ download: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) throws(CacheFailure) -> any DownloadHandle {
        do throws(TransferFailure) {
            return try scheduler.start(.download(download), at: .now()) { onEnd($0.ofDownload) }
        } catch {
            throw CacheFailure(error)
        }
    }
}

extension CurlImageFetcher: TokenFetching {
    public func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, TransferFailure>) -> Void
    ) throws(TransferFailure) -> any DownloadHandle {
        let url: WebURL
        do {
            url = try WebURL(asCurl: request.endpoint.url)
        } catch {
            throw .origin("the token endpoint's URL is none: \(error)")
        }
        return try scheduler.start(.token(request, url), at: .now()) { onEnd($0.ofToken) }
    }
}

/// Why the fetcher cannot be started.
public struct FetcherError: Error, Sendable, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}
