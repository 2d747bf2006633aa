import CacheCore
import LinuxSupport

/// The counts of a fetcher since its start, and its current load.
package struct FetcherStatistics: Sendable, Equatable {
    /// A count that is kept for each origin. ``metrics(origins:)`` declares how each is shown.
    package enum Counter: Int, CaseIterable, Sendable {
        /// Requests sent or attempted, including redirects.
        case requests
        /// Bytes of response bodies received, including discarded ones.
        case bytes
        case images, missing, cancelled
        /// Connections that were not opened, or not used, because of the peer's address.
        case refusedAddresses
        /// Downloads that failed at once because a circuit breaker was open.
        case rejected

        // Failed downloads, by kind.
        case timedOut, failedOrigin, unauthorized, denied, badImage, tooLarge
        /// Downloads refused because too many of the account were queued.
        case busy

        // Responses received, by status, including followed redirects.
        case successful, notModified
        /// 300 to 399 without 304.
        case redirected
        /// 400 to 499 without 429.
        case refused
        case tooMany
        /// 500 and above.
        case broken

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

        /// Nil for the shutdown of the fetcher, which is not counted.
        package init?(_ failure: FetchFailure.Kind) {
            switch failure {
            case .timedOut: self = .timedOut
            case .origin, .forbidden, .circuitOpen: self = .failedOrigin
            case .unauthorized: self = .unauthorized
            case .denied: self = .denied
            case .badImage: self = .badImage
            case .tooLarge: self = .tooLarge
            case .busy: self = .busy
            case .shuttingDown: return nil
            }
        }
    }

    package struct Counts: Sendable, Equatable {
        private static let zeros = [Int](repeating: 0, count: Counter.allCases.count)

        /// Indexed by counter. An array, because every transfer counts.
        private var counts = zeros

        package init() {}

        package subscript(counter: Counter) -> Int {
            get { counts[counter.rawValue] }
            set { counts[counter.rawValue] = newValue }
        }

        package static func += (sum: inout Self, more: Self) {
            for counter in more.counts.indices {
                sum.counts[counter] = min(sum.counts[counter] + more.counts[counter], maximumCount)
            }
        }
    }

    package struct OriginFigures: Sendable, Equatable {
        package var counts = Counts()
        /// Milliseconds until the last host with a breaker open for all accounts may be requested; 0 without such a
        /// host.
        package var retryIn: Int64 = 0
        /// As ``retryIn``, including breakers open for single accounts.
        package var longestRetryIn: Int64 = 0

        package init() {}

        package mutating func add(retryIn milliseconds: Int64, isForAll: Bool) {
            longestRetryIn = max(longestRetryIn, milliseconds)
            if isForAll { retryIn = max(retryIn, milliseconds) }
        }
    }

    package var inFlight = 0
    package var queued = 0
    /// Hosts whose breaker is open, or probing, for all accounts.
    package var hostsOpen = 0
    /// Breakers open for one account and one host.
    package var accountsOpen = 0
    /// By the origin's name, for origins that were used.
    package var origins: [String: OriginFigures] = [:]

    /// The sum over all origins, including those that are no longer configured.
    package subscript(counter: Counter) -> Int { origins.values.reduce(0) { $0 + $1.counts[counter] } }

    package init() {}
}

extension FetcherStatistics {
    /// A metric made of counters, one per value of its label.
    private struct OriginMetric: Sendable {
        let name: String
        let unit: String
        let help: String
        var label: String?
        /// Without a label, one counter whose value is unused.
        let counters: [(counter: Counter, value: String)]

        func labelValues(_ value: String) -> [String] { label == nil ? [] : [value] }
    }

    private static let originMetrics: [OriginMetric] = [
        .init(
            name: "requests_total", unit: "requests",
            help: "Requests sent to the origin, including redirects and retries.", counters: [(.requests, "")]),
        .init(
            name: "received_bytes_total", unit: "bytes", help: "Size of the response bodies received from the origin.",
            counters: [(.bytes, "")]),
        .init(
            name: "responses_total", unit: "responses",
            help: "Responses of the origin by status. 3xx excludes 304, 4xx excludes 429.", label: "status",
            counters: [
                (.successful, "2xx"), (.notModified, "304"), (.redirected, "3xx"), (.refused, "4xx"), (.tooMany, "429"),
                (.broken, "5xx"),
            ]),
        .init(
            name: "downloads_total", unit: "downloads",
            help: "Downloads that ended, by outcome. Rejected (open circuit breaker) counts as failed as well.",
            label: "outcome",
            counters: [
                (.images, "image"), (.missing, "missing"), (.cancelled, "cancelled"), (.rejected, "rejected"),
                (.timedOut, "timed_out"), (.failedOrigin, "failed"), (.unauthorized, "unauthorized"),
                (.denied, "denied"), (.badImage, "bad_image"), (.tooLarge, "too_large"), (.busy, "busy"),
            ]),
        .init(
            name: "refused_addresses_total", unit: "connections",
            help: "Connections refused because of the address of the host.", counters: [(.refusedAddresses, "")]),
    ]

    /// The metrics of section `fetch`. INFO shows the sums over all origins.
    /// - Parameter origins: the configured ones. The fetcher's own list is not trusted: a name could be that of a user.
    package func metrics(origins names: [String]) -> [Metric] {
        [
            Metric("downloads_in_flight", .gauge, unit: "downloads", "Downloads in progress.", inFlight),
            Metric("downloads_queued", .gauge, unit: "downloads", "Downloads waiting for others to end.", queued),
            Metric(
                "breakers_open", .gauge, unit: "breakers",
                "Circuit breakers open for all accounts, and for single accounts.", isForEveryone: true,
                [
                    .init(hostsOpen, labels: ["scope": "host"], visibility: .everyone),
                    .init(accountsOpen, labels: ["scope": "account"]),
                ]),
            Metric(
                "origin_retry_seconds", .gauge, unit: "seconds",
                "Time until the last host of the origin with an open circuit breaker is requested again.",
                names.map {
                    let milliseconds = origins[$0]?.longestRetryIn ?? 0
                    return .init(
                        Int(clamping: milliseconds.saturatingAdd(999) / 1_000), labels: ["origin": $0],
                        visibility: .metrics)
                }),
        ]
            + Self.originMetrics.map { metric in
                Metric(
                    "origin_\(metric.name)", .counter, unit: metric.unit, metric.help, samples(of: metric, names),
                    infoFields: {
                        metric.counters.map { counter, value in
                            Metric.InfoField(
                                Metric.infoName("origins_\(metric.name)", metric.labelValues(value)),
                                "\(self[counter])")
                        }
                    })
            }
    }

    private func samples(of metric: OriginMetric, _ names: [String]) -> [Metric.Sample] {
        names.flatMap { name in
            metric.counters.map { counter, value in
                Metric.Sample(
                    text: "\(origins[name]?.counts[counter] ?? 0)",
                    labels: [("origin", name)] + (metric.label.map { [($0, value)] } ?? []))
            }
        }
    }

    /// The value of `origin_NAME` in INFO.
    /// - Parameter isObserver: whether to include counters of all accounts. Other clients get the retry time only:
    ///   whether an origin can be reached concerns every client (I1).
    package func infoLine(of origin: String, isObserver: Bool) -> String {
        let figures = origins[origin] ?? .init()
        guard isObserver else { return "retry_in_ms=\(figures.retryIn)" }
        let counters = Self.originMetrics.flatMap { metric in
            metric.counters.map { counter, value in
                "\(Metric.infoName(metric.name, metric.labelValues(value)))=\(figures.counts[counter])"
            }
        }
        return (counters + ["retry_in_ms=\(figures.longestRetryIn)"]).joined(separator: ",")
    }

    /// Adds the counts of another fetcher.
    package mutating func count(_ more: [String: OriginFigures]) {
        for (name, figures) in more { origins[name, default: .init()].counts += figures.counts }
    }

    func write(to message: inout MessageWriter) {
        for figure in [inFlight, queued, hostsOpen, accountsOpen] { message.integer(Int64(figure)) }
        message.list(origins) { message, origin in
            message.text(origin.key)
            for counter in Counter.allCases { message.integer(Int64(origin.value.counts[counter])) }
            message.integer(origin.value.retryIn)
            message.integer(origin.value.longestRetryIn)
        }
    }

    init(_ message: inout MessageReader, maximumOrigins: Int) throws(MessageError) {
        inFlight = try message.count(maximum: maximumCount)
        queued = try message.count(maximum: maximumCount)
        hostsOpen = try message.count(maximum: maximumCount)
        accountsOpen = try message.count(maximum: maximumCount)
        let figures = try message.list(maximum: maximumOrigins) { message throws(MessageError) in
            let name = try message.text()
            var figures = OriginFigures()
            for counter in Counter.allCases { figures.counts[counter] = try message.count(maximum: maximumCount) }
            figures.retryIn = Int64(try message.count(maximum: FetcherReport.maximumRetry))
            figures.longestRetryIn = Int64(try message.count(maximum: FetcherReport.maximumRetry))
            return (name, figures)
        }
        origins = Dictionary(figures) { $1 }
    }
}

/// The limit of one counter, so that sums over fetchers, origins and kinds never overflow.
private let maximumCount = 1 << 40
