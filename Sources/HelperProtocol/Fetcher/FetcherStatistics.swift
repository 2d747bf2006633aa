import CacheCore

/// Figures since the fetcher was started, and how many downloads there are right now.
package struct FetcherStatistics: Sendable, Equatable {
    /// What is counted, for each origin: named and listed as INFO has it.
    package enum Counter: String, CaseIterable, Sendable {
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

        package init(status: Int) {
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
        package init?(_ failure: CacheFailure) {
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
    package struct Counts: Sendable, Equatable {
        private var counts: [Counter: Int] = [:]

        package init() {}

        package subscript(counter: Counter) -> Int {
            get { counts[counter, default: 0] }
            set { counts[counter] = newValue }
        }

        /// Downloads that failed, whatever the reason.
        package var failures: Int { Counter.failures.reduce(0) { $0 + self[$1] } }

        package static func += (sum: inout Self, more: Self) {
            sum.counts.merge(more.counts) { min($0 + $1, largest) }
        }
    }

    package struct OriginFigures: Sendable, Equatable {
        package var counts = Counts()
        /// Milliseconds until the last of its hosts that nobody may ask may be asked again; 0 where there is none.
        package var retryIn: Int64 = 0
        /// The same, counting the hosts that only some uids may not ask.
        package var longestRetryIn: Int64 = 0

        package init() {}

        /// One more host that may be asked again in so many milliseconds.
        package mutating func add(retryIn milliseconds: Int64, isForAll: Bool) {
            longestRetryIn = max(longestRetryIn, milliseconds)
            if isForAll { retryIn = max(retryIn, milliseconds) }
        }
    }

    /// Downloads under way.
    package var inFlight = 0
    /// Downloads that wait until others have ended.
    package var queued = 0
    /// Hosts that nobody may ask now but for one request that finds out whether they are back.
    package var hostsOpen = 0
    /// Ways of single uids to single hosts that are not open to them now: what they met says nothing to others.
    package var uidsOpen = 0
    /// Of each origin that anything was asked of, by its name.
    package var origins: [String: OriginFigures] = [:]

    /// The sum of all origins, also of those that are configured no more.
    package subscript(counter: Counter) -> Int { origins.values.reduce(0) { $0 + $1.counts[counter] } }

    package init() {}
}

extension FetcherStatistics {
    /// Adds what another fetcher has counted.
    package mutating func count(_ more: [String: OriginFigures]) {
        for (name, figures) in more { origins[name, default: .init()].counts += figures.counts }
    }

    func write(to message: inout MessageWriter) {
        for figure in [inFlight, queued, hostsOpen, uidsOpen] { message.integer(Int64(figure)) }
        message.list(origins) { message, origin in
            message.text(origin.key)
            for counter in Counter.allCases { message.integer(Int64(origin.value.counts[counter])) }
            message.integer(origin.value.retryIn)
            message.integer(origin.value.longestRetryIn)
        }
    }

    init(_ message: inout MessageReader, mostOrigins: Int) throws(MessageError) {
        inFlight = try message.count(most: largest)
        queued = try message.count(most: largest)
        hostsOpen = try message.count(most: largest)
        uidsOpen = try message.count(most: largest)
        let figures = try message.list(most: mostOrigins) { message throws(MessageError) in
            let name = try message.text()
            var figures = OriginFigures()
            for counter in Counter.allCases { figures.counts[counter] = try message.count(most: largest) }
            figures.retryIn = Int64(try message.count(most: longestRetry))
            figures.longestRetryIn = Int64(try message.count(most: longestRetry))
            return (name, figures)
        }
        origins = Dictionary(figures) { $1 }
    }
}

/// What is believed of one counter, and of a sum of one over fetchers: so a sum over origins and kinds never overflows.
private let largest = 1 << 40
/// Milliseconds: the maximum of `backoff-max` and `retry-after-max`, with a second for rounding.
private let longestRetry = 86_401_000
