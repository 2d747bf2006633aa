import DequeModule

/// One piece of work in progress, with the requests that wait for it.
struct Flight: Sendable {
    var id: FlightID
    var waiters: Deque<Waiter> = []
    /// Cancels a download; nil until it has started. Reads are not cancelled; their results are ignored.
    var handle: (any DownloadHandle)?
    /// Whether the flight continues without waiters.
    var isBackground = false
    /// Number of the grace period that began when the last waiter left.
    var grace: UInt64?

    // Of a download:
    var target: DownloadTarget?
    /// The stale image to serve if the origin fails or a waiter times out.
    var staleImage: ServedImage?
    /// The image to revalidate, kept here so that a 304 finds its bytes even after an eviction; nil for an
    /// unconditional request.
    var basis: Image?
    /// URL of the image that was stored when the download began.
    var storedURL: String?
    /// Whether a response without an image removes the stored image: false if that came from another URL or is newer.
    var ownsImageKey = false

    // Of the request for the source of a rendition:
    /// The stored rendition, which may be that of an older source.
    var storedRendition: Image?
    /// The waiter for the source, on behalf of this flight.
    var sourceWaiter: WaiterID?
    /// Only later changes of the source outdate the result of the request.
    var requestNumber: UInt64 = 0

    // Of a rendering:
    /// The source, which is served if the rendering fails or a waiter times out.
    var renditionSource: ServedImage?

    var isAbandoned: Bool { waiters.isEmpty && !isBackground }

    /// The image for a waiter that times out.
    var imageOnTimeout: ServedImage? { staleImage ?? renditionSource }

    /// The image before a download, if it was stale or is revalidated.
    private var known: Image? { staleImage?.image ?? basis }
    var knowsImage: Bool { known != nil }

    /// Whether a downloaded image differs from the earlier one. An image that is not stored where none was stored is no
    /// change: a subscriber that requests it after each event would cause endless downloads.
    func isChange(to image: Image, isStored: Bool) -> Bool {
        guard let known else { return isStored }
        return !isStored || known.record.digest != image.record.digest
    }

    mutating func remove(_ id: WaiterID) -> Waiter? {
        waiters.firstIndex { $0.id == id }.map { waiters.remove(at: $0) }
    }
}

/// Identifies one piece of work. The number distinguishes it from earlier and later work of the same kind.
struct FlightID: Hashable, Sendable {
    enum Work: Hashable, Sendable {
        /// The read from disk that precedes any download.
        case read
        /// The download of one URL: GETs with different URLs each get their own image.
        case download(String)
        /// The download from a chain of upstreams (``UpstreamChain``).
        case chain
        /// The request for the source of a rendition.
        case source(SourceKey)
        /// Rendering from the source with that digest.
        case render(ImageDigest)

        init(_ target: DownloadTarget) { self = target.others.isEmpty ? .download(target.url) : .chain }

        var isDownload: Bool {
            switch self {
            case .download, .chain: true
            case .read, .source, .render: false
            }
        }
    }

    /// How the source of a rendition is requested. Equal requests share a flight.
    struct SourceKey: Hashable, Sendable {
        let imageKey: ImageKey
        /// The URL that the client named.
        let named: String?
        let download: ImageQuery.Download
    }

    let imageKey: ImageKey
    let work: Work
    let number: UInt64
}

/// A request that waits for an image. For a GET of a client, `resolve` is the closure that `Connection` passes.
struct Waiter: Sendable {
    let id: WaiterID
    let query: ImageQuery
    let resolve: @Sendable (Result<ServedImage?, CacheFailure>) -> Void
}
