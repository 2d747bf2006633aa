/// Describes the result of a GET without performing it.
public struct Explanation: Sendable, Equatable {
    public enum Action: String, Sendable {
        /// Returns the held image.
        case serve
        /// Returns the held image, which is stale, and requests it again in the background.
        case refresh
        /// Requests the image again, and returns the held one, which is stale, if the origin fails.
        case revalidate
        /// Requests the image.
        case download
        /// Waits for a download in flight.
        case wait
        /// Renders the source, which is held.
        case render
        /// Returns the origin's fallback image.
        case fallback
        /// Returns null.
        case none
        /// Returns ``Explanation/failure``.
        case fail
    }

    public struct Held: Sendable, Equatable {
        /// `memory` or `disk`.
        public let place: ServedImage.Source
        /// Scheme, host and port that the image came from; nil if a client PUT it.
        public let host: String?
        /// Seconds, as in the reply to STAT.
        public let age: Int64
        public let timeToLive: Int64?
        /// Whether it may be served without asking the origin.
        public let isFresh: Bool
        let digest: ImageDigest
        let shape: ImageShape
    }

    public struct Upstream: Sendable, Equatable {
        public enum State: String, Sendable {
            /// It receives a request if the upstreams before it have no image.
            case ready
            /// It had no image.
            case missing
            /// Its response held no usable image.
            case unusable
            /// Its circuit breaker is open.
            case suspended
            /// It needs an access token, and none is available.
            case unauthorized
            /// The fetcher sends no request now.
            case failed
        }

        /// Scheme, host and port. Path and query may contain secrets.
        public let host: String
        public internal(set) var state = State.ready
        /// Seconds since the response that is remembered.
        public internal(set) var age: Int64?
        /// Seconds until the next request to it.
        public internal(set) var retryIn: Int64?
        /// The failure of a request that is not sent; nil if it is sent, or if the image is missing.
        var failure: CacheFailure?
    }

    public internal(set) var action: Action
    /// The failure that GET returns.
    public internal(set) var failure: CacheFailure?
    public internal(set) var held: Held?
    /// Name of the origin; nil without one.
    public internal(set) var origin: String?
    /// In the order of requests. Empty if ``source`` has them.
    public internal(set) var upstreams: [Upstream] = []
    /// Seconds until a request to the origin is possible, if it is not now.
    public internal(set) var retryIn: Int64?
    /// Requests that wait for the download in flight; nil without one. All requests for one rendition count as one.
    public internal(set) var waiting: Int?
    /// Pixels of the request; 0 without SIZE.
    public internal(set) var size: UInt16
    /// The image that this one is rendered from; at most one element.
    public internal(set) var source: [Explanation] = []
}

extension Explanation.Held {
    init(_ held: ServedImage, at now: Int64) {
        let record = held.image.record
        let host: String? = if case .url(let url) = record.provenance { DownloadTarget.authority(of: url) } else { nil }
        self.init(
            place: held.source == .disk ? .disk : .memory, host: host, age: record.freshness.age(at: now),
            timeToLive: record.freshness.timeToLive(at: now), isFresh: record.freshness.isFresh(at: now),
            digest: record.digest, shape: record.shape)
    }
}
