import LinuxSupport
import NIOCore

/// The daemon's access to the fetcher.
public protocol ImageFetching: Sendable {
    /// The URLs to request for an image: the origin's templates filled in, or `url` if a client named one and an
    /// `allow` entry covers it. Normalized, so that equal URLs are equal strings. Pure; costs microseconds.
    func target(origin: Origin, user: OpaqueID, imageKey: ImageKey, url: String?) throws(CacheFailure) -> DownloadTarget

    /// Starts a download, or queues it if a limit is reached. Never blocks.
    ///
    /// `onEnd` is called exactly once, on the fetcher client's loop, unless ``DownloadHandle/cancel()`` came first.
    /// After a cancel it may still be called; the caller must ignore it. It must not block or take longer than about
    /// 50 µs, because other downloads wait for that thread.
    /// - Throws: when too many downloads of the account wait, and when the host's circuit breaker is open.
    func start(_ download: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void) throws(FetchFailure)
        -> any DownloadHandle

    /// The reason why circuit breakers would reject that download, or why no fetcher runs; nil if there is none or it is
    /// unknown. Starts nothing. Takes a message to the fetcher and back, at most 2 s.
    func refusal(of download: Download) async -> FetchRefusal?

    /// Whether any download is in flight or queued, as of a moment ago. Costs a lock.
    var isBusy: Bool { get }
}

/// A request to the fetcher that can be cancelled.
public protocol DownloadHandle: Sendable {
    /// Stops the request soon. Returns at once; idempotent.
    func cancel()
}

/// The URL of a download, and the rules that depend on who named it.
public struct DownloadTarget: Hashable, Sendable {
    /// Maximum length of a redirect's URL in bytes. Signed URLs are long.
    public static var longestRedirect: Int { 8 << 10 }

    /// Absolute and normalized.
    public let url: String
    /// Whether a client named the URL. Its redirects must then match the `allow` entries, too.
    public let isNamedByClient: Bool
    /// Whether the user's token may be sent to it. The fetcher checks each request again.
    public let showsToken: Bool
    /// The domain whose SRV records may name another host for the same path and query (``Federation``), if any.
    public let federatedDomain: String?
    /// The upstreams to try next, in this order, if this one has no image or fails. Their own `others` is empty.
    public var others: [DownloadTarget]

    public init(
        url: String, isNamedByClient: Bool, showsToken: Bool = true, federatedDomain: String? = nil,
        others: [DownloadTarget] = []
    ) {
        (self.url, self.isNamedByClient, self.showsToken) = (url, isNamedByClient, showsToken)
        (self.federatedDomain, self.others) = (federatedDomain, others)
    }

    /// Scheme, host, and the port unless it is the default, of a normalized URL. Does not parse it.
    public static func authority(of url: String) -> String {
        // It ends at the third slash.
        var slashes = 0
        let end = url.utf8.firstIndex { byte in
            if byte == UInt8(ascii: "/") { slashes += 1 }
            return slashes == 3
        }
        return end.map { String(url[..<$0]) } ?? url
    }
}

public struct Download: Sendable {
    /// The account that the download is charged to.
    public let account: UInt32
    public let origin: Origin
    public let target: DownloadTarget
    /// Sent as `Authorization: Bearer`, only to the origin's own scheme, host and port.
    public let token: Secret?
    /// Milliseconds for the whole download: the origin's timeout, or this upstream's share of it.
    public var timeout: Int64
    public var condition: DownloadCondition?
    public let framing: ReplyFraming

    public init(
        account: UInt32, origin: Origin, target: DownloadTarget, token: Secret?, timeout: Int64? = nil,
        condition: DownloadCondition? = nil, framing: ReplyFraming
    ) {
        (self.account, self.origin, self.target, self.token) = (account, origin, target, token)
        self.timeout = timeout ?? origin.timeout
        self.condition = condition
        self.framing = framing
    }
}

/// The validators of a conditional request (RFC 9110 section 13.1), as they were received.
public struct DownloadCondition: Hashable, Sendable {
    /// The URL whose response had the validators, normalized. Requests to other URLs, as after a changed redirect, are
    /// sent without them.
    public let url: String
    /// For If-None-Match.
    public let etag: String?
    /// For If-Modified-Since.
    public let lastModified: String?

    public init(url: String, etag: String?, lastModified: String?) {
        (self.url, self.etag, self.lastModified) = (url, etag, lastModified)
    }
}

/// Why a download would fail without a request.
public struct FetchRefusal: Sendable, Equatable {
    public let failure: FetchFailure
    /// Milliseconds until the circuit breaker of the host allows a request; nil if that is unknown.
    public let retryIn: Int64?

    public init(_ failure: FetchFailure, retryIn: Int64? = nil) {
        (self.failure, self.retryIn) = (failure, retryIn)
    }
}

/// The outcome of a download, as the fetcher reports it.
public enum DownloadOutcome: Sendable {
    case image(DownloadedImage)
    /// The origin has no image: 204, 404 or 410.
    case missing(ResponseHeaders)
    /// A definite response without a usable image, such as HTML, 403 or an image that is too large. The next request
    /// would get the same. The failure's kind satisfies ``FetchFailure/Kind/describesResponse``.
    case unusable(FetchFailure, ResponseHeaders)
    /// 304: the image that the request was conditional on is still valid. Only for a download with a condition.
    case notModified(ResponseHeaders)
    case failed(FetchFailure)
}

/// A downloaded body that is a complete image of a known kind.
public struct DownloadedImage: Sendable {
    public let bytes: ImageBytes
    public let shape: ImageShape
    public let headers: ResponseHeaders
    /// The URL that the redirects led to, normalized; nil without redirects.
    public let redirectedTo: String?

    public init(bytes: ImageBytes, shape: ImageShape, headers: ResponseHeaders, redirectedTo: String? = nil) {
        (self.bytes, self.shape, self.headers, self.redirectedTo) = (bytes, shape, headers, redirectedTo)
    }
}

/// The header fields of a response that matter to a cache, with the values of each field in order.
public struct ResponseHeaders: Sendable, Equatable {
    /// Field names are lower case.
    public var fields: [String: [String]]
    /// Whole seconds from the request to the end of the response.
    public var delay: Int64
    public var redirects: [ResponseHeaders]

    public init(_ fields: [String: [String]] = [:], delay: Int64 = 0, redirects: [ResponseHeaders] = []) {
        (self.fields, self.delay, self.redirects) = (fields, delay, redirects)
    }

    /// The values of a list-valued field as one list (RFC 9110 section 5.3).
    public subscript(name: String) -> String? { fields[name]?.joined(separator: ", ") }
}
