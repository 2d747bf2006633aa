// An origin's links, asked one after another: the first that has a picture wins.

extension DownloadTarget {
    /// Whether it is so of this or one of the others. No array is made of them: every miss asks.
    func contains(_ isSuch: (DownloadTarget) -> Bool) -> Bool { isSuch(self) || others.contains(where: isSuch) }

    func allSatisfy(_ isSuch: (DownloadTarget) -> Bool) -> Bool { isSuch(self) && others.allSatisfy(isSuch) }

    /// Under what failures of refreshes are remembered. No URL is empty: what is missing is remembered under those.
    var nameOfFailures: String { others.isEmpty ? url : "" }

    /// The same links with the one of that URL before all others; nil where none has it.
    func beginning(at url: String) -> DownloadTarget? {
        let links = [DownloadTarget](self)
        guard var first = links.first(where: { $0.url == url }) else { return nil }
        first.others = links.filter { $0.url != url }
        return first
    }
}

extension [DownloadTarget] {
    /// All links, the first among them, each by itself.
    init(_ target: DownloadTarget) {
        var first = target
        first.others = []
        self = [first] + target.others
    }
}

/// How far one download has come along its links. A value: who asks them takes each result here and is told what it
/// comes to, or that the next is to be asked.
struct UpstreamChain: Sendable {
    typealias Result = RequestCoordinator.DownloadResult

    /// All of it, to begin anew with.
    let target: DownloadTarget
    private let links: [DownloadTarget]
    private var index = 0
    /// What each link said that was asked and gave no image.
    private(set) var answers: [String: NegativeAnswer] = [:]
    /// Why one that was asked could not say.
    private var failure: CacheFailure?
    /// Whether nothing that fails later takes its place: see ``take(_:timeToLive:heldURL:prefersHeld:)``.
    private var isDecided = false
    /// By ``Timekeeping/uptime``; nil until the first is asked.
    private var deadline: Int64?

    /// Milliseconds that a link is given are so many parts of all there are: those who wait with the same number stand
    /// in one line of the fetcher's.
    private static var parts: Int64 { 16 }

    init(_ target: DownloadTarget) {
        (self.target, links) = (target, [DownloadTarget](target))
    }

    /// Nil when all were asked.
    var current: DownloadTarget? { index < links.count ? links[index] : nil }
    /// Of the current one, from 0.
    var number: Int { index }
    /// Whether one of them has said anything.
    var hasHeard: Bool { !answers.isEmpty || failure != nil }

    /// Passes over those that are known to have none.
    mutating func skip(_ isMissing: (String) -> Bool) {
        while links.count > 1, let current, isMissing(current.url) { index += 1 }
    }

    /// Milliseconds that the current link may take: an even share of what is left, so that one that hangs leaves as
    /// much to those behind it. What it does not take is theirs, too. Nil when there is no time left.
    mutating func share(of timeout: Int64, at uptime: Int64) -> Int64? {
        guard links.count > 1 else { return timeout }
        let end = deadline ?? uptime + timeout
        deadline = end
        let (left, count) = (end - uptime, Int64(links.count - index))
        let part = max(1, timeout / Self.parts)
        guard left >= part else { return nil }
        return min(left / part, max(1, (left + count * part / 2) / (count * part))) * part
    }

    /// What the current link has said, and with it all that were asked; nil where the next is to be asked.
    /// - Parameters:
    ///   - timeToLive: seconds that a picture is fresh at most for which somebody who failed was passed over.
    ///   - heldURL: of the image that is held.
    ///   - prefersHeld: whether it is served, stale, rather than that others are asked.
    mutating func take(
        _ result: Result, timeToLive: Int64, heldURL: String?, prefersHeld: (CacheFailure, DownloadTarget) -> Bool
    ) -> Result? {
        guard let link = current, links.count > 1 else {
            answers[target.url] = result.negativeAnswer
            return result
        }
        switch result {
        case .image(let image, let storable):
            return .image(asStandIn(image, timeToLive), storable: storable)
        case .confirmed(let image, let storable):
            return .confirmed(asStandIn(image, timeToLive), storable: storable)
        case .missing:
            answers[link.url] = result.negativeAnswer
        case .unusable(let failure, _, _), .failed(let failure):
            answers[link.url] = result.negativeAnswer
            guard failure.isOfLink, !prefersHeld(failure, link) else { return .failed(failure) }
            if !isDecided { self.failure = failure }
            // Who gave what is held says that this user may not have it: that others fail does not allow it again.
            isDecided = isDecided || link.url == heldURL && !failure.allowsStale
        }
        index += 1
        return nil
    }

    /// What all of them come to, none of which had a picture.
    /// - Parameter family: of the tokens that they were shown.
    func end(family: UInt32) -> Result {
        // Where one could not say, nobody knows that there is none.
        if let failure { return .failed(failure) }
        return .missing(until: answers.values.map(\.until).min() ?? 0, family: family)
    }

    /// Behind a link that failed a picture is believed no longer than "there is none" is: then all are asked anew.
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

extension RequestCoordinator {
    /// The URL that the image held came from, as the download found it.
    func heldURL(_ id: FlightID) -> String? { flight(id)?.heldURL }

    /// Whether the download is to end with the failure of whoever gave the image that is held: it is served, stale.
    func prefersHeld(_ id: FlightID, to failure: CacheFailure, of link: DownloadTarget) -> Bool {
        guard let flight = flight(id), flight.held != nil else { return false }
        return flight.heldURL == link.url && failure.allowsStale
    }
}

extension CacheFailure {
    /// Whether it is about the link that was asked, so that another may do better; else about who asks.
    fileprivate var isOfLink: Bool {
        switch self {
        case .timedOut, .origin, .forbidden, .unauthorized, .badImage, .tooLarge, .denied, .invalid: true
        case .notLoggedIn, .cancelled, .busy, .noSpace, .inputOutput, .shuttingDown: false
        }
    }
}
