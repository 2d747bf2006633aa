import CacheCore
import NIOConcurrencyHelpers
import NIOCore

/// A fetcher whose downloads the test ends by hand.
public final class FakeFetcher: ImageFetching {
    private struct State {
        var downloads: [FakeDownload] = []
        var refusal: CacheFailure?
        var isBusy = false
        var answer: (@Sendable (Download) -> DownloadOutcome?)?
        var answersOn: (any BlockingPool)?
        var waiting: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state = NIOLockedValueBox(State())
    private let log: EventLog

    /// - Parameter log: where cancelled downloads are recorded, as `cancel URL`.
    public init(log: EventLog = EventLog()) {
        self.log = log
    }

    /// All downloads started, in that order, whatever became of them.
    public var downloads: [FakeDownload] { state.withLockedValue { $0.downloads } }

    /// What it says of itself, whatever is under way.
    public var isBusy: Bool {
        get { state.withLockedValue { $0.isBusy } }
        set { state.withLockedValue { $0.isBusy = newValue } }
    }

    /// While set, no download starts.
    public var refusal: CacheFailure? {
        get { state.withLockedValue { $0.refusal } }
        set { state.withLockedValue { $0.refusal = newValue } }
    }

    /// While set, a download for which it returns something has ended before `start` returns, as it may on a fast
    /// thread.
    public var answer: (@Sendable (Download) -> DownloadOutcome?)? {
        get { state.withLockedValue { $0.answer } }
        set { state.withLockedValue { $0.answer = newValue } }
    }

    /// Where what ``answer`` returns ends a download: while nil before `start` returns, else whenever the pool comes to
    /// it.
    public var answersOn: (any BlockingPool)? {
        get { state.withLockedValue { $0.answersOn } }
        set { state.withLockedValue { $0.answersOn = newValue } }
    }

    /// Lets go of all downloads, as a fetcher does when it is done with them.
    public func forgetAll() {
        state.withLockedValue { $0.downloads = [] }
    }

    /// Waits until so many downloads have been started in all.
    public func started(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let isReached = state.withLockedValue { state in
                if state.downloads.count >= count { return true }
                state.waiting.append((count, continuation))
                return false
            }
            if isReached { continuation.resume() }
        }
    }

    /// Fills in `{profile}`, `{user}` and `{size}` as they are. A named URL must begin with an `allow` entry or with
    /// what the template has before its first placeholder.
    public func target(origin: Origin, user: OpaqueID, imageKey: ImageKey, url: String?) throws(CacheFailure)
        -> DownloadTarget
    {
        if let url {
            guard (origin.allow + [Self.base(origin.url)]).contains(where: { url.hasPrefix($0) }) else {
                throw .denied("that URL is not under any allow entry of origin \(origin.name)")
            }
            return DownloadTarget(url: url, isNamedByClient: true)
        }
        let size = imageKey.size == 0 ? origin.defaultSize : imageKey.size
        let values = ["{profile}": imageKey.profile.text, "{user}": user.text, "{size}": "\(size)"]
        func filled(_ template: String) -> String {
            values.reduce(template) {
                $0.split(separator: $1.key, omittingEmptySubsequences: false).joined(separator: $1.value)
            }
        }
        return DownloadTarget(
            url: filled(origin.url), isNamedByClient: false, showsToken: origin.showsToken,
            others: origin.then.map {
                DownloadTarget(url: filled($0.url), isNamedByClient: false, showsToken: $0.showsToken)
            })
    }

    private static func base(_ template: String) -> String {
        String(template.prefix { $0 != "{" })
    }

    public func start(
        _ request: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) throws(CacheFailure) -> any DownloadHandle {
        let download = FakeDownload(request: request, onEnd: onEnd, log: log)
        let (refusal, answer, pool) = state.withLockedValue { ($0.refusal, $0.answer, $0.answersOn) }
        if let refusal { throw refusal }
        let due = state.withLockedValue { state in
            state.downloads.append(download)
            let count = state.downloads.count
            let due = state.waiting.filter { $0.count <= count }
            state.waiting.removeAll { $0.count <= count }
            return due
        }
        for (_, continuation) in due { continuation.resume() }
        // It is on the list by now: whoever gets the answer may look there.
        if let outcome = answer?(request) {
            if let pool { pool.submit(for: request.uid) { download.end(outcome) } } else { download.end(outcome) }
        }
        return download
    }
}

/// A download under way, until the test ends it.
public final class FakeDownload: DownloadHandle {
    public let request: Download
    private let onEnd: @Sendable (DownloadOutcome) -> Void
    private let log: EventLog
    private let state = NIOLockedValueBox((isCancelled: false, hasEnded: false))

    init(request: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void, log: EventLog) {
        self.request = request
        self.onEnd = onEnd
        self.log = log
    }

    public var url: String { request.target.url }
    public var isCancelled: Bool { state.withLockedValue { $0.isCancelled } }

    /// Ends the download; also after ``cancel()``, which the protocol allows. A second time it does nothing.
    public func end(_ outcome: DownloadOutcome) {
        let isFirst = state.withLockedValue { state in
            defer { state.hasEnded = true }
            return !state.hasEnded
        }
        if isFirst { onEnd(outcome) }
    }

    public func cancel() {
        let isFirst = state.withLockedValue { state in
            defer { state.isCancelled = true }
            return !state.isCancelled
        }
        if isFirst { log.record("cancel \(url)") }
    }
}

extension OpaqueID {
    /// The bytes as text, for tests, whose ids are.
    public var text: String { withBytes { String(decoding: $0, as: UTF8.self) } }
}
