import ThumbnailCache

/// Figures since the fetcher was made, and how many downloads there are right now.
public struct FetcherStatistics: Sendable, Equatable {
    /// What is counted, for each origin: named and listed as INFO has it.
    public enum Counter: String, CaseIterable, Sendable {
        /// Requests sent or attempted, redirects followed included.
        case requests
        /// Bytes of bodies received, also of those thrown away.
        case bytes
        /// Downloads that ended with an image.
        case images
        /// Downloads that ended with "there is none".
        case missing
        /// Downloads that were cancelled before they ended.
        case cancelled
        /// Connections that were not made, or not used, because of the address at the other end.
        case refusedAddresses = "refused_addresses"
        /// Downloads that failed at once, because a circuit breaker was open.
        case rejected

        // Downloads that failed, by kind.
        case timedOut = "failed_timed_out"
        case failedOrigin = "failed_origin"
        case unauthorized = "failed_unauthorized"
        case denied = "failed_denied"
        case badImage = "failed_bad_image"
        case tooLarge = "failed_too_large"
        /// Not taken, because too many of the uid waited.
        case busy = "failed_busy"

        // Answers received, by their status; redirects followed included.
        case successful = "answers_2xx"
        /// 304.
        case notModified = "not_modified"
        /// 300 to 399, without 304.
        case redirected = "answers_3xx"
        /// 400 to 499, without 429.
        case refused = "answers_4xx"
        case tooMany = "answers_429"
        /// 500 and above.
        case broken = "answers_5xx"

        init(status: Int) {
            switch status {
            case ..<300: self = .successful
            case 304: self = .notModified
            case ..<400: self = .redirected
            case 429: self = .tooMany
            case ..<500: self = .refused
            default: self = .broken
            }
        }

        /// Nil for what only the end of the fetcher brings.
        init?(_ failure: CacheFailure) {
            switch failure {
            case .timedOut: self = .timedOut
            case .origin, .forbidden: self = .failedOrigin
            case .unauthorized: self = .unauthorized
            case .denied: self = .denied
            case .badImage: self = .badImage
            case .tooLarge: self = .tooLarge
            case .busy: self = .busy
            case .shuttingDown, .notLoggedIn, .cancelled, .invalid, .noSpace, .inputOutput: return nil
            }
        }

        fileprivate static let failures: [Self] = [
            .timedOut, .failedOrigin, .unauthorized, .denied, .badImage, .tooLarge, .busy,
        ]
    }

    /// What was asked of one origin, and what came of it.
    public struct Counts: Sendable, Equatable {
        private var counts: [Counter: Int] = [:]

        public subscript(counter: Counter) -> Int {
            get { counts[counter, default: 0] }
            set { counts[counter] = newValue }
        }

        /// Downloads that failed, whatever the reason.
        public var failures: Int { Counter.failures.reduce(0) { $0 + self[$1] } }

        static func += (sum: inout Self, more: Self) { sum.counts.merge(more.counts, uniquingKeysWith: +) }

        mutating func count(_ outcome: TransferOutcome) {
            if case .failed(.notAsked) = outcome { self[.rejected] += 1 }
            switch outcome.ofDownload {
            case .image: self[.images] += 1
            case .missing: self[.missing] += 1
            case .notModified: break
            case .failed(let failure): if let counter = Counter(failure) { self[counter] += 1 }
            }
        }
    }

    public struct OriginFigures: Sendable, Equatable {
        public var counts = Counts()
        /// Milliseconds until the last of its hosts that nobody may ask may be asked again; 0 where there is none.
        public var retryIn: Int64 = 0
        /// The same, counting the hosts that only some uids may not ask.
        public var longestRetryIn: Int64 = 0

        public init() {}

        /// One more host that may be asked again in so many milliseconds.
        mutating func add(retryIn milliseconds: Int64, isForAll: Bool) {
            longestRetryIn = max(longestRetryIn, milliseconds)
            if isForAll { retryIn = max(retryIn, milliseconds) }
        }
    }

    /// Downloads under way.
    public var inFlight = 0
    /// Downloads that wait until others have ended.
    public var queued = 0
    /// Hosts that nobody may ask now but for one request that finds out whether they are back.
    public var hostsOpen = 0
    /// Ways of single uids to single hosts that are not open to them now: what they met says nothing to others.
    public var uidsOpen = 0
    /// Of each origin that anything was asked of, by its name.
    public var origins: [String: OriginFigures] = [:]

    /// The sum of all origins, also of those that are configured no more.
    public subscript(counter: Counter) -> Int { origins.values.reduce(0) { $0 + $1.counts[counter] } }
}
