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
    /// Downloads under way.
    public var inFlight = 0
    /// Downloads that wait until others have ended.
    public var queued = 0

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

    mutating func count(_ outcome: DownloadOutcome) {
        switch outcome {
        case .image: images += 1
        case .missing: missing += 1
        case .notModified: notModified += 1
        case .failed(let failure): failures.count(failure)
        }
    }
}

extension FetcherStatistics.Failures {
    mutating func count(_ failure: DownloadFailure) {
        switch failure {
        case .timedOut: timedOut += 1
        case .origin: origin += 1
        case .unauthorized: unauthorized += 1
        case .denied: denied += 1
        case .badImage: badImage += 1
        case .tooLarge: tooLarge += 1
        case .busy: busy += 1
        case .shuttingDown: shuttingDown += 1
        }
    }
}
