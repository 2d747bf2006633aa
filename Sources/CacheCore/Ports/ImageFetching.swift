import LinuxSupport
import NIOCore

/// Downloads, as the domain needs them.
public protocol ImageFetching: Sendable {
    /// The URL to ask for an image: the origin's templates filled in, or `url` where a client named one, judged
    /// by the origin's `allow` entries. Normalised, so that equal URLs are equal strings. Pure; costs microseconds.
    func target(origin: Origin, user: OpaqueID, imageKey: ImageKey, url: String?) throws(CacheFailure) -> DownloadTarget

    /// Starts a download, or queues it where a limit says so. `onEnd` is called exactly once, on a thread of the
    /// fetcher's, unless ``DownloadHandle/cancel()`` came first; then it may still be called, and is to be ignored. It
    /// must not block, nor take longer than some 50 µs: other downloads wait for that thread. Never blocks. Throws when
    /// no more downloads of that uid may wait, and when a circuit breaker is open.
    func start(_ download: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void) throws(CacheFailure)
        -> any DownloadHandle

    /// Whether any download is under way or waits for its turn, as of a moment ago. Costs a lock.
    var isBusy: Bool { get }
}

/// A download under way.
public protocol DownloadHandle: Sendable {
    /// Stops it soon. Returns at once, whatever libcurl is doing; idempotent.
    func cancel()
}

/// Where a download goes.
public struct DownloadTarget: Hashable, Sendable {
    /// Bytes that the URL of a redirect may have. Signed URLs are long.
    public static var longestRedirect: Int { 8 << 10 }

    /// Absolute and normalised.
    public let url: String
    /// Whether it was named by the client: then its redirects are held to the `allow` entries.
    public let isNamedByClient: Bool
    /// Whether the user's token is for it. The fetcher looks once more at where each request goes.
    public let showsToken: Bool
    /// The domain that may name another host for the same path and query, by ``Federation``; nil where none may.
    public let federatedDomain: String?
    /// Whom to ask next, in this order, where this one has no picture or fails. These have none behind them.
    public var others: [DownloadTarget]

    public init(
        url: String, isNamedByClient: Bool, showsToken: Bool = true, federatedDomain: String? = nil,
        others: [DownloadTarget] = []
    ) {
        self.url = url
        self.isNamedByClient = isNamedByClient
        self.showsToken = showsToken
        self.federatedDomain = federatedDomain
        self.others = others
    }
}

/// All that a download needs.
public struct Download: Sendable {
    public let uid: UInt32
    public let origin: Origin
    public let target: DownloadTarget
    /// Sent as `Authorization: Bearer` to the origin's own scheme, host and port, and to nobody else.
    public let token: Secret?
    /// Milliseconds for all of it: the origin's, or what this link of it may take of them.
    public var timeout: Int64
    /// With it, the image is wanted only if it is no longer the one that is held.
    public var condition: DownloadCondition?
    public let framing: ReplyFraming

    public init(
        uid: UInt32, origin: Origin, target: DownloadTarget, token: Secret?, timeout: Int64? = nil,
        condition: DownloadCondition? = nil, framing: ReplyFraming
    ) {
        self.uid = uid
        self.origin = origin
        self.target = target
        self.token = token
        self.timeout = timeout ?? origin.timeout
        self.condition = condition
        self.framing = framing
    }
}

/// What makes a request conditional (RFC 9110 section 13.1). The values are sent as they once came.
public struct DownloadCondition: Hashable, Sendable {
    /// The URL that gave the validators, normalised. They mean nothing to any other: where redirects lead elsewhere
    /// now, that request is sent without them.
    public let url: String
    /// For If-None-Match.
    public let etag: String?
    /// For If-Modified-Since.
    public let lastModified: String?

    public init(url: String, etag: String?, lastModified: String?) {
        self.url = url
        self.etag = etag
        self.lastModified = lastModified
    }
}

/// How a download ended.
public enum DownloadOutcome: Sendable {
    case image(DownloadedImage)
    /// The origin has no image: 204, 404 or 410.
    case missing(ResponseHeaders)
    /// The origin gave a definite response that holds no usable image, such as HTML, 403 or an image that is too large:
    /// the next request would get the same. Only with a failure that has a ``NegativeReason``.
    case unusable(CacheFailure, ResponseHeaders)
    /// What the request was conditional on still holds: 304. Never the outcome of a download without a condition.
    case notModified(ResponseHeaders)
    case failed(CacheFailure)
}

/// A body that is a whole image of a known kind.
public struct DownloadedImage: Sendable {
    public let bytes: ImageBytes
    public let shape: ImageShape
    public let headers: ResponseHeaders
    /// The URL that answered in the end, normalised, where redirects led elsewhere.
    public let redirectedTo: String?

    public init(bytes: ImageBytes, shape: ImageShape, headers: ResponseHeaders, redirectedTo: String? = nil) {
        self.bytes = bytes
        self.shape = shape
        self.headers = headers
        self.redirectedTo = redirectedTo
    }
}

/// The header fields of an answer that matter to a cache: each field's values in the order they came.
public struct ResponseHeaders: Sendable, Equatable {
    /// Field names in lower case.
    public var fields: [String: [String]]
    /// Whole seconds from the request to the end of its answer.
    public var delay: Int64
    /// What each redirect said that was followed to get here, in the order they came.
    public var redirects: [ResponseHeaders]

    public init(_ fields: [String: [String]] = [:], delay: Int64 = 0, redirects: [ResponseHeaders] = []) {
        self.fields = fields
        self.delay = delay
        self.redirects = redirects
    }

    /// The values of a list-valued field as one list (RFC 9110 section 5.3).
    public subscript(name: String) -> String? { fields[name]?.joined(separator: ", ") }
}
