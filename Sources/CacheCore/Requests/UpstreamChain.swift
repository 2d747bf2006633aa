/// The progress of one download along its chain of upstreams: the first one that has an image wins.
///
/// A value: the caller passes each result to ``accept(_:timeToLive:storedURL:prefersStale:)``.
struct UpstreamChain: Sendable {
    /// The whole chain, to start over.
    let target: DownloadTarget
    private let upstreams: [DownloadTarget]
    private var index = 0
    /// Responses without a usable image, by URL.
    private(set) var negative: [String: NegativeResponse] = [:]
    /// The failure that the chain ends with if no later upstream has an image.
    private var failure: CacheFailure?
    /// Whether later failures no longer replace ``failure``.
    private var isDecided = false
    /// In milliseconds of ``Timekeeping/uptime``; nil until the first upstream is requested.
    private var deadline: Int64?

    /// Timeouts are multiples of one of so many parts of the whole, since the fetcher's `TransferQueue` has a deque for
    /// each different timeout.
    private static var parts: Int64 { 16 }

    init(_ target: DownloadTarget) {
        (self.target, upstreams) = (target, [DownloadTarget](target))
    }

    var current: DownloadTarget? { index < upstreams.count ? upstreams[index] : nil }
    /// Position of ``current``, from 0.
    var number: Int { index }
    var hasResult: Bool { !negative.isEmpty || failure != nil }

    /// Skips upstreams that are known to have no image.
    mutating func skip(_ isMissing: (String) -> Bool) {
        while upstreams.count > 1, let current, isMissing(current.url) { index += 1 }
    }

    /// The timeout of the current upstream in milliseconds: an equal share of the time left, so that an upstream that
    /// hangs leaves time for the others. Rounded to the nearest multiple of a part, but at least one part and at most
    /// the time left: of 4,000 ms for three upstreams, the first gets 1,250 ms. Nil if less than a part is left.
    mutating func share(of timeout: Int64, at uptime: Int64) -> Int64? {
        guard upstreams.count > 1 else { return timeout }
        let end = deadline ?? uptime + timeout
        deadline = end
        let (left, count) = (end - uptime, Int64(upstreams.count - index))
        let part = max(1, timeout / Self.parts)
        guard left >= part else { return nil }
        return min(left / part, max(1, (left + count * part / 2) / (count * part))) * part
    }

    /// Accepts the result of the current upstream. Returns the result of the chain; nil if the next upstream is to be
    /// requested.
    /// - Parameters:
    ///   - timeToLive: maximum seconds that an image is fresh if an upstream before it failed.
    ///   - prefersStale: whether to serve the stored image, stale, instead of requesting the other upstreams.
    mutating func accept(
        _ result: RequestCoordinator.DownloadResult, timeToLive: Int64, storedURL: String?,
        prefersStale: (CacheFailure, DownloadTarget) -> Bool
    ) -> RequestCoordinator.DownloadResult? {
        guard let upstream = current, upstreams.count > 1 else {
            negative[target.url] = result.negativeResponse
            return result
        }
        switch result {
        case .image(let image, let storable):
            return .image(asStandIn(image, timeToLive), storable: storable)
        case .confirmed(let image, let storable):
            return .confirmed(asStandIn(image, timeToLive), storable: storable)
        case .missing:
            negative[upstream.url] = result.negativeResponse
        case .unusable, .failed:
            negative[upstream.url] = result.negativeResponse
            guard let failure = result.failure else { return result }
            guard failure.isOfUpstream, !prefersStale(failure, upstream) else { return .failed(failure) }
            if !isDecided { self.failure = failure }
            // Keep this failure: a later upstream's failure must not make the stale image acceptable.
            isDecided = isDecided || upstream.url == storedURL && !failure.allowsStale
        }
        index += 1
        return nil
    }

    /// The result if no upstream had an image, for the tokens of a family.
    func end(family: UInt32) -> RequestCoordinator.DownloadResult {
        // An upstream that failed may have the image, so it is not known to be missing.
        if let failure { return .failed(failure) }
        return .missing(until: negative.values.map(\.until).min() ?? 0, family: family)
    }

    /// Limits the freshness of an image if an upstream before it failed, so that the chain is requested again.
    private func asStandIn(_ image: Image, _ timeToLive: Int64) -> Image {
        var record = image.record
        record.isStandIn = failure != nil
        if record.isStandIn {
            let most = record.freshness.initialAge + timeToLive
            record.freshness.lifetime = min(record.freshness.lifetime ?? most, most)
        }
        return Image(record: record, bytes: image.bytes)
    }
}

extension DownloadTarget {
    /// Whether the condition holds for any upstream. Allocates no array, since every miss calls it.
    func contains(_ condition: (DownloadTarget) -> Bool) -> Bool {
        condition(self) || others.contains(where: condition)
    }

    func allSatisfy(_ condition: (DownloadTarget) -> Bool) -> Bool { condition(self) && others.allSatisfy(condition) }

    /// Key of failed refreshes in the negative cache; empty for a chain, since URLs are keys of missing images.
    var refreshKey: String { others.isEmpty ? url : "" }

    /// The same upstreams, with that of the URL first; nil if none has it.
    func beginning(at url: String) -> DownloadTarget? {
        let upstreams = [DownloadTarget](self)
        guard var first = upstreams.first(where: { $0.url == url }) else { return nil }
        first.others = upstreams.filter { $0.url != url }
        return first
    }
}

extension [DownloadTarget] {
    /// The upstreams of a target, each without ``DownloadTarget/others``.
    init(_ target: DownloadTarget) {
        var first = target
        first.others = []
        self = [first] + target.others
    }
}

extension CacheFailure {
    /// Whether the failure concerns the upstream, so that another may succeed; otherwise it concerns the request.
    fileprivate var isOfUpstream: Bool {
        switch self {
        case .timedOut, .origin, .forbidden, .unauthorized, .badImage, .tooLarge, .denied, .invalid: true
        case .notLoggedIn, .cancelled, .busy, .noSpace, .inputOutput, .shuttingDown: false
        }
    }
}
