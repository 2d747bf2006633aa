import CacheCore
import HelperProtocol
import NIOConcurrencyHelpers
import NIOCore
import Origins

/// A request to the fetcher.
package enum TransferJob: Sendable {
    case download(Download)
    /// With the parsed URL of the token endpoint.
    case token(TokenRequest, WebURL)

    package init(_ request: TokenRequest) throws(FetchFailure) {
        do throws(CacheFailure) {
            self = .token(request, try WebURL(asCurl: request.endpoint.url))
        } catch {
            throw .origin("invalid URL of the token endpoint: \(error)")
        }
    }

    var kind: TransferKind { if case .download = self { .download } else { .token } }

    var account: UInt32 {
        switch self {
        case .download(let download): download.account
        case .token(let request, _): request.account
        }
    }

    var origin: Origin {
        switch self {
        case .download(let download): download.origin
        case .token(let request, _): request.origin
        }
    }

    /// The host of its first request.
    var host: HostKey {
        switch self {
        case .download(let download):
            if let domain = download.target.federatedDomain { return HostKey(origin: origin.name, namedBy: domain) }
            return HostKey(origin: origin.name, authority: DownloadTarget.authority(of: download.target.url))
        case .token(_, let url):
            return HostKey(origin: origin.name, authority: url.authority)
        }
    }

    /// Milliseconds for the whole transfer.
    var timeout: Int64 {
        switch self {
        case .download(let download): download.timeout
        case .token(let request, _): request.origin.timeout
        }
    }

    /// Maximum number of transfers of this kind in flight for its origin.
    var originLimit: Int { kind == .download ? origin.connections : TokenTransfer.maximumPerOrigin }
}

/// Downloads and token requests have queues of their own, so that neither waits for the other.
enum TransferKind: Int, CaseIterable, Sendable {
    case download, token

    /// Plural, for error messages.
    var pluralName: String { self == .download ? "downloads" : "token requests" }
}

/// The outcome of a ``TransferJob``, of the same kind.
package enum TransferOutcome: Sendable {
    case download(DownloadOutcome)
    case token(Result<TokenGrant, FetchFailure>)
}

extension TransferJob {
    func failed(_ failure: FetchFailure) -> TransferOutcome {
        switch self {
        case .download: .download(.failed(failure))
        case .token: .token(.failure(failure))
        }
    }
}

extension FetchFailure {
    static func rejected(_ host: HostKey, _ reason: CircuitBreaker.Rejection) -> Self {
        .circuitOpen(reason.sentence(about: host.displayName))
    }
}

/// The owner's handle of one transfer. Reports the outcome at most once, and not after ``cancel()``.
///
/// The owner and the fetcher's thread compete for `onEnd`: the first to remove it wins.
final class TransferHandle: DownloadHandle {
    let entry: TransferQueue.Entry
    let job: TransferJob
    let scheduler: TransferScheduler
    private let onEnd: NIOLockedValueBox<(@Sendable (TransferOutcome) -> Void)?>

    init(
        entry: TransferQueue.Entry, job: TransferJob, scheduler: TransferScheduler,
        onEnd: @escaping @Sendable (TransferOutcome) -> Void
    ) {
        (self.entry, self.job, self.scheduler) = (entry, job, scheduler)
        self.onEnd = NIOLockedValueBox(onEnd)
    }

    var isCancelled: Bool { onEnd.withLockedValue { $0 == nil } }

    func cancel() {
        guard onEnd.withLockedValue({ $0.take() }) != nil else { return }
        scheduler.cancel(self)
    }

    /// Calls the owner's callback. Call it without a lock.
    func end(_ outcome: TransferOutcome) { onEnd.withLockedValue { $0.take() }?(outcome) }

    func fail(_ failure: FetchFailure) { end(job.failed(failure)) }
}

extension FetcherStatistics.Counts {
    mutating func count(_ outcome: DownloadOutcome) {
        switch outcome {
        case .image: self[.images] += 1
        case .missing: self[.missing] += 1
        case .notModified: break
        case .unusable(let failure, _), .failed(let failure):
            if failure.kind == .circuitOpen { self[.rejected] += 1 }
            if let counter = FetcherStatistics.Counter(failure.kind) { self[counter] += 1 }
        }
    }
}
