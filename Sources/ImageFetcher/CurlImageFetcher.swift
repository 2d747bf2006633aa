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

/// Downloads images and refreshes access tokens with libcurl, on one thread of its own.
///
/// Reading order: ``OriginRules`` (the URL), ``TransferScheduler`` (queues and circuit breakers), `TransferLoop` (the
/// thread), `Transfer` (one request after another), `DownloadTransfer` and `ResponseReader` (an image),
/// `ServiceLookups` (SRV records), `TokenTransfer` and `TokenResponse` (an access token).
///
/// Call ``start()`` before the first request and ``shutdown()`` after the last. Without ``shutdown()``, the thread
/// continues after the fetcher is released.
public final class CurlImageFetcher: Sendable {
    /// Maximum number of concurrent token requests, in addition to downloads. Each may need a socket, and descriptors
    /// for the resolver.
    public static var tokenRequestsAtOnce: Int { TokenTransfer.maximumConcurrent }

    /// Maximum number of sockets of one SRV query.
    public static var descriptorsPerQuery: Int { 2 * Int(CDNS_MOST_SERVERS) }

    private let scheduler: TransferScheduler
    private let rulesCache = OriginRulesCache()
    private let log: Logger
    private let running = NIOLockedValueBox<SocketLoop?>(nil)

    /// The loop of the thread; nil while it does not run.
    package var loop: SocketLoop? { running.withLockedValue { $0 } }

    package convenience init(settings: FetcherSettings, log: Logger) {
        self.init(settings: settings, environment: FetcherEnvironment(), log: log)
    }

    init(settings: FetcherSettings, environment: FetcherEnvironment, log: Logger) {
        self.scheduler = TransferScheduler(settings: settings, environment: environment, log: log)
        self.log = log
    }

    /// Starts the thread. Throws if libcurl or c-ares cannot be initialized, and on a second call.
    public func start() throws(FetcherError) {
        // Never undone, because an abandoned resolver thread of libcurl may still run.
        let code = ccurl_global_init()
        guard code == CURLE_OK else { throw FetcherError("libcurl: \(String(cString: curl_easy_strerror(code)))") }
        guard cdns_start() == 0 else { throw FetcherError("cannot initialize c-ares") }
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
            guard scheduler.open(wake: { loop.execute { transfers.value.fetchWork() } }) else {
                throw FetcherError("the fetcher was started before")
            }
            running.withLockedValue { $0 = loop }
        } catch {
            loop.end {}
            throw error as? FetcherError ?? FetcherError("\(error)")
        }
    }

    /// Fails every request, closes idle connections and ends the thread. Returns when no `onEnd` runs any more.
    /// Idempotent; must not be called from an `onEnd`.
    public func shutdown() {
        scheduler.stop()
        guard let loop = running.withLockedValue({ $0.take() }) else { return }
        let hasEnded = Semaphore()
        loop.end(hasEnded.signal)
        hasEnded.wait()
    }

    /// Applies new limits to requests that begin from now on.
    package func update(_ settings: FetcherSettings) { scheduler.update(settings) }

    /// Calls `work` on the fetcher's thread in its next round, so that a stuck thread is noticed; at once if it does
    /// not run. `work` must not block.
    public func callOnLoop(_ work: @escaping @Sendable () -> Void) { scheduler.callOnLoop(work) }

    package var statistics: FetcherStatistics { scheduler.statistics(at: .now()) }

    /// Why the circuit breakers would reject a request now; nil if they would not. Changes nothing.
    package func refusal(of job: TransferJob) -> FetchRefusal? { scheduler.refusal(of: job, at: .now()) }

    /// Starts a download or a token request, or queues it if a limit is reached. Never blocks.
    ///
    /// `onEnd` is called at most once, on the fetcher's thread: see ``CacheCore/ImageFetching``.
    /// - Throws: when too many requests of the account wait, and when the host's circuit breaker is open.
    package func start(
        _ job: TransferJob, onEnd: @escaping @Sendable (TransferOutcome) -> Void
    ) throws(FetchFailure) -> any DownloadHandle {
        try scheduler.start(job, at: .now(), onEnd: onEnd)
    }
}

/// Why the fetcher could not be started.
public struct FetcherError: Error, Sendable, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}
