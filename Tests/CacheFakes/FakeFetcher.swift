import CacheCore
import NIOConcurrencyHelpers
import NIOCore

/// A fetcher whose downloads are ended by the test.
public final class FakeFetcher: ImageFetching {
    private struct State {
        var downloads: [FakeDownload] = []
        var refusal: FetchFailure?
        var suspended: [String: Int64] = [:]
        var onCheck: (@Sendable () async -> Void)?
        var isBusy = false
        var answer: (@Sendable (Download) -> DownloadOutcome?)?
        var answersOn: (any BlockingPool)?
        var onStart: (@Sendable (FakeDownload) -> Void)?
    }

    private let starts = Gate()
    private let state = NIOLockedValueBox(State())
    private let log: EventLog

    /// - Parameter log: where cancelled downloads are recorded, as `cancel URL`.
    public init(log: EventLog = EventLog()) {
        self.log = log
    }

    /// All downloads that were started, in order, including ended ones.
    public var downloads: [FakeDownload] { state.withLockedValue { $0.downloads } }

    /// Whether downloads are reported as in flight.
    public var isBusy: Bool {
        get { state.withLockedValue { $0.isBusy } }
        set { state.withLockedValue { $0.isBusy = newValue } }
    }

    /// While set, no download starts.
    public var refusal: FetchFailure? {
        get { state.withLockedValue { $0.refusal } }
        set { state.withLockedValue { $0.refusal = newValue } }
    }

    /// Milliseconds for which requests to a URL are suspended.
    public var suspended: [String: Int64] {
        get { state.withLockedValue { $0.suspended } }
        set { state.withLockedValue { $0.suspended = newValue } }
    }

    /// Called at the next ``refusal(of:)``, before it returns.
    public var onCheck: (@Sendable () async -> Void)? {
        get { state.withLockedValue { $0.onCheck } }
        set { state.withLockedValue { $0.onCheck = newValue } }
    }

    public func refusal(of download: Download) async -> FetchRefusal? {
        await state.withLockedValue { $0.onCheck.take() }?()
        let (refusal, retryIn) = state.withLockedValue { ($0.refusal, $0.suspended[download.target.url]) }
        if let retryIn { return FetchRefusal(.circuitOpen("suspended for \(retryIn) ms"), retryIn: retryIn) }
        return refusal.map { FetchRefusal($0) }
    }

    /// While set, a download ends with the returned outcome before `start` returns, as a fast download may.
    public var answer: (@Sendable (Download) -> DownloadOutcome?)? {
        get { state.withLockedValue { $0.answer } }
        set { state.withLockedValue { $0.answer = newValue } }
    }

    /// The pool on which outcomes of ``answer`` are delivered; nil delivers them before `start` returns.
    public var answersOn: (any BlockingPool)? {
        get { state.withLockedValue { $0.answersOn } }
        set { state.withLockedValue { $0.answersOn = newValue } }
    }

    /// While set, gets each download that starts. It is then not in ``downloads``.
    public var onStart: (@Sendable (FakeDownload) -> Void)? {
        get { state.withLockedValue { $0.onStart } }
        set { state.withLockedValue { $0.onStart = newValue } }
    }

    /// Releases all downloads, as a fetcher does after their end.
    public func forgetAll() {
        state.withLockedValue { $0.downloads = [] }
    }

    /// Waits until that many downloads have been started in total.
    public func started(_ count: Int) async { await starts.reached(by: count) }

    /// Inserts `{profile}`, `{user}` and `{size}` without encoding. A named URL must begin with an `allow` entry or
    /// with the template's text before its first placeholder.
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
        func filled(_ template: String) -> String {
            Self.fill(template) { name in
                switch name {
                case "profile": imageKey.profile.text
                case "user": user.text
                case "size": "\(size)"
                default: nil
                }
            }
        }
        return DownloadTarget(
            url: filled(origin.url), isNamedByClient: false, showsToken: origin.showsToken,
            others: origin.then.map {
                DownloadTarget(url: filled($0.url), isNamedByClient: false, showsToken: $0.showsToken)
            })
    }

    /// Replaces the placeholders that `value` knows. Fast, since every miss of a simulation calls it.
    private static func fill(_ template: String, _ value: (Substring) -> String?) -> String {
        var (filled, rest) = ("", template[...])
        while let open = rest.utf8.firstIndex(of: UInt8(ascii: "{")),
            let close = rest.utf8[open...].firstIndex(of: UInt8(ascii: "}")),
            let value = value(rest[rest.utf8.index(after: open)..<close])
        {
            filled += rest[..<open]
            filled += value
            rest = rest[rest.utf8.index(after: close)...]
        }
        return filled + rest
    }

    private static func base(_ template: String) -> String {
        String(template.prefix { $0 != "{" })
    }

    public func start(
        _ request: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) throws(FetchFailure) -> any DownloadHandle {
        let download = FakeDownload(request: request, onEnd: onEnd, log: log)
        let (refusal, answer, pool, onStart) = state.withLockedValue {
            ($0.refusal, $0.answer, $0.answersOn, $0.onStart)
        }
        if let refusal { throw refusal }
        if let onStart {
            onStart(download)
            return download
        }
        // Added first, because `onEnd` may read the list.
        state.withLockedValue { $0.downloads.append(download) }
        starts.arrive()
        if let outcome = answer?(request) {
            if let pool { pool.submit(for: request.account) { download.end(outcome) } } else { download.end(outcome) }
        }
        return download
    }
}

/// A download in flight that the test ends.
public final class FakeDownload: DownloadHandle {
    private struct State {
        var isCancelled = false
        /// Nil after the end, as in the fetcher's client: it retains what retains this handle.
        var onEnd: (@Sendable (DownloadOutcome) -> Void)?
    }

    public let request: Download
    private let log: EventLog
    private let state: NIOLockedValueBox<State>

    init(request: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void, log: EventLog) {
        self.request = request
        self.log = log
        state = NIOLockedValueBox(State(onEnd: onEnd))
    }

    public var url: String { request.target.url }
    public var isCancelled: Bool { state.withLockedValue { $0.isCancelled } }

    /// Ends the download. Allowed after ``cancel()``; later calls do nothing.
    public func end(_ outcome: DownloadOutcome) {
        let onEnd = state.withLockedValue { $0.onEnd.take() }
        onEnd?(outcome)
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
    /// The bytes as text.
    public var text: String { withBytes { String(decoding: $0, as: UTF8.self) } }
}
