/// The request of a GET to a user's cache.
public struct ImageQuery: Sendable {
    /// How the request uses the network.
    public enum Download: Sendable, Hashable {
        /// Waits for the download of a missing image.
        case awaited
        /// For WARM: waits for the download of a missing or stale image.
        case renewed
        /// Returns the stored image, fresh or stale, or nil; downloads a missing or stale one in the background.
        case inBackground
        /// Returns the stored image, fresh or stale, or nil.
        case never
    }

    public let imageKey: ImageKey
    /// The URL that the client named, checked and normalized; nil to accept any stored image or request the origin.
    public let named: DownloadTarget?
    public let download: Download
    /// Whether a missing rendition is made. Not for STAT.
    public let rendersMissing: Bool
    /// Whether the image is the source of a rendition, hence not counted as served.
    var isForRendition = false

    public init(
        imageKey: ImageKey, named: DownloadTarget? = nil, download: Download = .awaited,
        rendersMissing: Bool = true
    ) {
        self.imageKey = imageKey
        self.named = named
        self.download = download
        self.rendersMissing = rendersMissing
    }

    /// A copy that does not share storage with the request.
    func detached() -> ImageQuery {
        var query = ImageQuery(
            imageKey: imageKey.detached(), named: named, download: download, rendersMissing: rendersMissing)
        query.isForRendition = isForRendition
        return query
    }

    /// With a URL, only an image from that URL is accepted.
    func accepts(_ image: Image) -> Bool {
        guard let named else { return true }
        return image.record.provenance == .url(named.url)
    }
}

/// An image with the source that a reply reports.
public struct ServedImage: Sendable {
    public enum Source: String, Sendable {
        case memory, disk, origin, revalidated, put
        /// The origin's fallback image.
        case fallback
    }

    public internal(set) var image: Image
    public let source: Source
    /// Whether the image was stale when it was served.
    let isStale: Bool
    /// Whether the image may be stored.
    let isStorable: Bool

    public init(_ image: Image, from source: Source, at now: Int64, isStorable: Bool = true) {
        self.image = image
        self.source = source
        self.isStorable = isStorable
        isStale = !image.record.freshness.isFresh(at: now)
    }
}

/// Identifies a waiter of a ``UserCache``.
public struct WaiterID: Hashable, Sendable {
    let number: UInt64
}
