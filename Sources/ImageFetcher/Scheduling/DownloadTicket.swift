import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

/// One download that was asked for: what its owner holds, and the only way to tell the owner how it ended.
///
/// Whoever takes the closure out decides: ``cancel()``, after which nothing is told any more, or the fetcher's thread,
/// which tells the outcome. So it is called once at most, whichever comes first.
final class DownloadTicket: DownloadHandle {
    let entry: DownloadQueue.Entry
    /// Where its first request goes.
    let host: HostKey
    let download: Download
    private let scheduler: DownloadScheduler
    private let onEnd: NIOLockedValueBox<(@Sendable (DownloadOutcome) -> Void)?>

    init(
        entry: DownloadQueue.Entry, host: HostKey, download: Download, scheduler: DownloadScheduler,
        onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) {
        self.entry = entry
        self.host = host
        self.download = download
        self.scheduler = scheduler
        self.onEnd = NIOLockedValueBox(onEnd)
    }

    var isCancelled: Bool { onEnd.withLockedValue { $0 == nil } }

    func cancel() {
        guard onEnd.withLockedValue({ $0.take() }) != nil else { return }
        scheduler.cancel(self)
    }

    /// Tells the outcome, outside of every lock.
    func end(_ outcome: DownloadOutcome) {
        onEnd.withLockedValue { $0.take() }?(outcome)
    }
}
