import ThumbnailCache

/// Figures since the fetcher was made, and how many downloads there are right now.
public struct FetcherStatistics: Sendable, Equatable {
    /// Requests sent or attempted, redirects followed included.
    public var requests = 0
    /// Bytes of bodies received, also of those thrown away.
    public var bytes = 0
    /// Downloads that ended with an image.
    public var images = 0
    /// Downloads that ended with "there is none".
    public var missing = 0
    /// Downloads that ended with "what you hold still holds".
    public var notModified = 0
    /// Downloads that failed, by kind.
    public var failures = Failures()
    /// Downloads that were cancelled before they ended.
    public var cancelled = 0
    /// Connections that were not made, or not used, because of the address at the other end.
    public var refusedAddresses = 0
    /// Answers received, by what their status says; redirects followed included.
    public var answers = Answers()
    /// Downloads that failed at once, because a circuit breaker was open.
    public var rejected = 0
    /// Downloads under way.
    public var inFlight = 0
    /// Downloads that wait until others have ended.
    public var queued = 0
    /// Hosts that nobody may ask now but for one request that finds out whether they are back.
    public var hostsOpen = 0
    /// Ways of single uids to single hosts that are not open to them now: what they met says nothing to others.
    public var uidsOpen = 0
    /// The same of each origin that anything was asked of, by its name.
    public var origins: [String: OriginFigures] = [:]

    /// Answers by status.
    public struct Answers: Sendable, Equatable {
        /// 200 to 299.
        public var successful = 0
        /// 304.
        public var notModified = 0
        /// 300 to 399, without 304.
        public var redirected = 0
        /// 400 to 499, without 429.
        public var refused = 0
        /// 429.
        public var tooMany = 0
        /// 500 and above.
        public var broken = 0
    }

    /// What was asked of one origin, and what came of it.
    public struct OriginFigures: Sendable, Equatable {
        public var requests = 0
        public var bytes = 0
        public var notModified = 0
        /// Downloads that failed, whatever the reason.
        public var failures = 0
        /// Of those, the ones that failed at once, because a circuit breaker was open.
        public var rejected = 0
        public var refusedAddresses = 0
        /// Milliseconds until the last of its hosts that nobody may ask may be asked again; 0 where there is none.
        public var retryIn: Int64 = 0
        /// The same, counting the hosts that only some uids may not ask.
        public var longestRetryIn: Int64 = 0

        public init() {}
    }

    public struct Failures: Sendable, Equatable {
        public var timedOut = 0
        public var origin = 0
        public var unauthorized = 0
        public var denied = 0
        public var badImage = 0
        public var tooLarge = 0
        /// Downloads not taken because too many of the uid waited.
        public var busy = 0
        public var shuttingDown = 0
    }

    mutating func count(_ outcome: TransferOutcome, of origin: String) {
        if case .failed(.rejected) = outcome {
            rejected += 1
            origins[origin, default: OriginFigures()].rejected += 1
        }
        switch outcome.ofDownload {
        case .image: images += 1
        case .missing: missing += 1
        case .notModified: notModified += 1
        case .failed(let failure):
            failures.count(failure)
            origins[origin, default: OriginFigures()].failures += 1
        }
    }

    mutating func count(_ cost: TransferScheduler.Cost, of origin: String) {
        requests += cost.requests
        bytes += cost.bytes
        refusedAddresses += cost.refusedAddresses
        answers += cost.answers
        origins[origin, default: OriginFigures()].requests += cost.requests
        origins[origin, default: OriginFigures()].bytes += cost.bytes
        origins[origin, default: OriginFigures()].notModified += cost.answers.notModified
        origins[origin, default: OriginFigures()].refusedAddresses += cost.refusedAddresses
    }
}

extension FetcherStatistics.Answers {
    mutating func count(_ status: Int) {
        switch status {
        case ..<300: successful += 1
        case 304: notModified += 1
        case ..<400: redirected += 1
        case 429: tooMany += 1
        case ..<500: refused += 1
        default: broken += 1
        }
    }

    static func += (sum: inout Self, more: Self) {
        sum.successful += more.successful
        sum.notModified += more.notModified
        sum.redirected += more.redirected
        sum.refused += more.refused
        sum.tooMany += more.tooMany
        sum.broken += more.broken
    }
}

extension FetcherStatistics.Failures {
    mutating func count(_ failure: DownloadFailure) {
        switch failure {
        case .timedOut: timedOut += 1
        case .origin, .forbidden: origin += 1
        case .unauthorized: unauthorized += 1
        case .denied: denied += 1
        case .badImage: badImage += 1
        case .tooLarge: tooLarge += 1
        case .busy: busy += 1
        case .shuttingDown: shuttingDown += 1
        }
    }
}
