import ThumbcacheProtocol

/// Describes the result of a GET without performing it.
public struct ImageExplanation: Sendable, Hashable {
    /// What the GET does.
    public enum Action: String, Sendable, Hashable {
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
        /// Renders the image from ``ImageExplanation/source``, which is held.
        case render
        /// Returns the origin's fallback image.
        case fallback
        /// Returns no image.
        case none
        /// Fails with ``ImageExplanation/error``.
        case fail
    }

    /// A held image.
    public struct Held: Sendable, Hashable {
        /// `memory` or `disk`.
        public let place: String
        /// Scheme and host that the image came from, or `put`.
        public let from: String
        /// See ``ImageStatus/age``.
        public let age: Duration
        /// See ``ImageStatus/timeToLive``.
        public let timeToLive: Duration?
        /// Whether the image is fresh or stale.
        public let state: ImageStatus.State
    }

    /// A server that images of the origin are requested from.
    public struct Upstream: Sendable, Hashable {
        /// Whether the upstream receives a request, or why not.
        public enum State: String, Sendable, Hashable {
            /// It receives a request if the upstreams before it have no image.
            case ready
            /// It had no image.
            case missing
            /// Its response held no usable image.
            case unusable
            /// It failed, and its circuit breaker is open.
            case suspended
            /// It needs an access token, and none is available.
            case unauthorized
            /// The daemon can send no request now.
            case failed
        }

        /// Scheme, host and port.
        public let host: String
        /// The state; nil if this library does not know it.
        public let state: State?
        /// The time since the response that is remembered.
        public let age: Duration?
        /// The time until the next request to it.
        public let retryIn: Duration?
    }

    /// What the GET does; nil if this library does not know it.
    public let action: Action?
    /// The code and message of the error that the GET returns.
    public let error: String?
    /// The held image, if any.
    public let held: Held?
    /// The name of the user's origin in the daemon's configuration.
    public let origin: String?
    /// In the order of requests. Empty if ``source`` has them.
    public let upstreams: [Upstream]
    /// The time until a request to the origin is possible, if it is not now.
    public let retryIn: Duration?
    /// The number of requests that wait for the download in flight; nil without a download. All requests for one rendition
    /// count as one.
    public let waiting: Int?
    /// The requested size in pixels.
    public let size: Int?
    /// The explanation of the image that this one is rendered from, if any.
    public var source: ImageExplanation? { sources.first }

    /// At most one, since a value cannot contain itself.
    private let sources: [ImageExplanation]
}

extension ImageExplanation {
    @_spi(Wire) public init(_ map: Value) throws(ThumbcacheError) {
        var reader = ReplyReader(map)
        action = Action(rawValue: try reader.text(ExplainKey.action.rawValue))
        error = reader.optionalText(ExplainKey.error.rawValue)
        if let place = reader.optionalText(ExplainKey.held.rawValue) {
            held = Held(
                place: place, from: try reader.text(ExplainKey.from.rawValue),
                age: .seconds(try reader.number(ExplainKey.age.rawValue)),
                timeToLive: try reader.optionalSeconds(ExplainKey.ttl.rawValue),
                state: ImageStatus.State(rawValue: try reader.text(ExplainKey.state.rawValue)) ?? .stale)
        } else {
            held = nil
        }
        origin = reader.optionalText(ExplainKey.origin.rawValue)
        var upstreams: [Upstream] = []
        for element in reader.value(ExplainKey.upstreams.rawValue)?.elements ?? [] {
            upstreams.append(try Upstream(element))
        }
        self.upstreams = upstreams
        retryIn = try reader.optionalSeconds(ExplainKey.retryIn.rawValue)
        waiting = try reader.optionalNumber(ExplainKey.waiting.rawValue)
        size = try reader.optionalNumber(ExplainKey.size.rawValue)
        if let source = reader.value(ExplainKey.source.rawValue), !source.isNull {
            sources = [try ImageExplanation(source)]
        } else {
            sources = []
        }
    }
}

extension ImageExplanation.Upstream {
    fileprivate init(_ map: Value) throws(ThumbcacheError) {
        var reader = ReplyReader(map)
        host = try reader.text(UpstreamKey.host.rawValue)
        state = State(rawValue: try reader.text(UpstreamKey.state.rawValue))
        age = try reader.optionalSeconds(UpstreamKey.age.rawValue)
        retryIn = try reader.optionalSeconds(UpstreamKey.retryIn.rawValue)
    }
}

extension ReplyReader {
    fileprivate mutating func optionalSeconds(_ key: String) throws(ThumbcacheError) -> Duration? {
        try optionalNumber(key).map { .seconds($0) }
    }
}
