import CacheCore
import HelperProtocol
import NIOConcurrencyHelpers
import NIOCore
import Origins

/// What is to be transferred.
enum TransferJob: Sendable {
    case download(Download)
    /// With the endpoint's URL.
    case token(TokenRequest, WebURL)

    var kind: TransferKind { if case .download = self { .download } else { .token } }

    var uid: UInt32 {
        switch self {
        case .download(let download): download.uid
        case .token(let request, _): request.uid
        }
    }

    var origin: Origin {
        switch self {
        case .download(let download): download.origin
        case .token(let request, _): request.origin
        }
    }

    /// Where its first request goes.
    var host: HostKey {
        switch self {
        case .download(let download):
            if let domain = download.target.federatedDomain { return HostKey(origin: origin.name, namedBy: domain) }
            return HostKey(origin: origin.name, authority: WebURL.authority(ofNormalized: download.target.url))
        case .token(_, let url):
            return HostKey(origin: origin.name, authority: url.authority)
        }
    }

    /// Milliseconds for all of it.
    var timeout: Int64 {
        switch self {
        case .download(let download): download.timeout
        case .token(let request, _): request.origin.timeout
        }
    }

    /// How many may be under way for its origin.
    var mostOfOrigin: Int { kind == .download ? origin.connections : TokenTransfer.mostAtOncePerOrigin }
}

/// Downloads and token requests have queues of their own, so that neither waits for the other.
enum TransferKind: Int, CaseIterable, Sendable {
    case download, token

    /// Several, in sentences.
    var name: String { self == .download ? "downloads" : "token requests" }
}

/// How a transfer ended.
enum TransferOutcome: Sendable {
    case download(DownloadOutcome)
    case token(Result<TokenGrant, TransferFailure>)
    /// As either may.
    case failed(TransferFailure)

    /// What the owner of a download is told.
    var ofDownload: DownloadOutcome {
        switch self {
        case .download(let outcome): outcome
        case .failed(let failure): .failed(CacheFailure(failure))
        // Would be a mistake of the fetcher's own: it costs this download, and not the daemon.
        case .token: .failed(.origin("the download ended as a token request: please report it"))
        }
    }

    /// What the owner of a token request is told.
    var ofToken: Result<TokenGrant, TransferFailure> {
        switch self {
        case .token(let outcome): outcome
        case .failed(let failure): .failure(failure)
        case .download: .failure(.origin("the token request ended as a download: please report it"))
        }
    }
}

extension TransferFailure {
    static func rejected(_ host: HostKey, _ why: CircuitBreaker.Rejection) -> Self {
        .notAsked(why.sentence(about: host.inSentences))
    }
}

/// One transfer that was asked for: what its owner holds, and the only way to tell the owner how it ended.
///
/// Whoever takes the closure out decides: ``cancel()``, after which nothing is told any more, or the fetcher's thread,
/// which tells the outcome. So it is called once at most, whichever comes first.
final class TransferHandle: DownloadHandle {
    let entry: TransferQueue.Entry
    let job: TransferJob
    let scheduler: TransferScheduler
    private let onEnd: NIOLockedValueBox<(@Sendable (TransferOutcome) -> Void)?>

    init(
        entry: TransferQueue.Entry, job: TransferJob, scheduler: TransferScheduler,
        onEnd: @escaping @Sendable (TransferOutcome) -> Void
    ) {
        self.entry = entry
        self.job = job
        self.scheduler = scheduler
        self.onEnd = NIOLockedValueBox(onEnd)
    }

    var isCancelled: Bool { onEnd.withLockedValue { $0 == nil } }

    func cancel() {
        guard onEnd.withLockedValue({ $0.take() }) != nil else { return }
        scheduler.cancel(self)
    }

    /// Tells the outcome, outside of every lock.
    func end(_ outcome: TransferOutcome) { onEnd.withLockedValue { $0.take() }?(outcome) }
}

extension FetcherStatistics.Counts {
    mutating func count(_ outcome: TransferOutcome) {
        if case .failed(.notAsked) = outcome { self[.rejected] += 1 }
        switch outcome.ofDownload {
        case .image: self[.images] += 1
        case .missing: self[.missing] += 1
        case .notModified: break
        case .unusable(let failure, _), .failed(let failure):
            if let counter = FetcherStatistics.Counter(failure) { self[counter] += 1 }
        }
    }
}
