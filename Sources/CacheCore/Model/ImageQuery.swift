/// What a GET asks of a user's cache.
public struct ImageQuery: Sendable {
    /// What it may ask of the network.
    public enum Download: Sendable, Hashable {
        /// It waits for what is missing.
        case awaited
        /// It waits for what is missing, and for what is to replace an image that is stale.
        case renewed
        /// What is held is the answer, fresh or stale, or nothing; what is missing or stale is downloaded behind it.
        case behind
        /// What is held is the answer, and nobody is asked.
        case never
    }

    public let imageKey: ImageKey
    /// The URL that the client named, judged and normalised; nil to take what is held, or ask the user's origin.
    public let named: DownloadTarget?
    public let download: Download
    /// Whether a larger image will do where there is none of the size. Never for who names no size, or a URL.
    public let largerWillDo: Bool
    /// Whether a picture is made in the size if it is not held: for who wants to know what is held it is not.
    public let rendersMissing: Bool
    /// Whether a rendition is to be made of it, and who asked gets that: it is no answer to anybody.
    var isForRendition = false

    public init(
        imageKey: ImageKey, named: DownloadTarget? = nil, download: Download = .awaited, largerWillDo: Bool = false,
        rendersMissing: Bool = true
    ) {
        self.imageKey = imageKey
        self.named = named
        self.download = download
        self.largerWillDo = largerWillDo && named == nil && imageKey.size > 0
        self.rendersMissing = rendersMissing
    }

    /// The same, apart from the request it came with.
    func detached() -> ImageQuery {
        var query = ImageQuery(
            imageKey: imageKey.detached(), named: named, download: download, largerWillDo: largerWillDo,
            rendersMissing: rendersMissing)
        query.isForRendition = isForRendition
        return query
    }

    /// Whether an image held in the image key is the one asked for: with a URL, only one that came from there.
    func accepts(_ image: Image) -> Bool {
        guard let named else { return true }
        return image.record.provenance == .url(named.url)
    }
}

/// An image on its way to whoever asked.
public struct ServedImage: Sendable {
    public enum Source: String, Sendable {
        case memory, disk, origin, revalidated, put
        /// The operator's picture, where nobody has one of the profile.
        case fallback
    }

    public internal(set) var image: Image
    public let source: Source
    /// Whether its life was over at that moment.
    let isStale: Bool
    /// Whether it may be kept: an origin can forbid it.
    let isKept: Bool

    /// - Parameter now: seconds since 1970.
    public init(_ image: Image, from source: Source, at now: Int64, isKept: Bool = true) {
        self.image = image
        self.source = source
        self.isKept = isKept
        isStale = !image.record.freshness.isFresh(at: now)
    }
}

/// An image, nil where there is none, or why not.
public typealias GetOutcome = Result<ServedImage?, CacheFailure>

/// Names a waiter within its ``UserCache``.
public struct WaiterID: Hashable, Sendable {
    let number: UInt64
}
