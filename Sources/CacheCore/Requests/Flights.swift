import DequeModule

// Single-flight: whoever asks for what is already on its way waits for that, and all are answered in the order they
// came by one result (I6). This file holds the values it is made of; `RequestCoordinator.swift` says how the flights of
// one image key follow from each other.

/// Somebody who waits for an image.
struct Waiter: Sendable {
    let id: WaiterID
    let query: ImageQuery
    let resolve: @Sendable (GetOutcome) -> Void
}

/// Names one piece of work that several may wait for. The number tells it from an older or newer one for the same: an
/// outcome is taken only from the flight that is current, so an old one can never end or replace a newer (I6).
struct FlightID: Hashable, Sendable {
    enum Work: Hashable, Sendable {
        /// The look on disk that comes before any download.
        case read
        /// The look for a larger image, where there is none of this size.
        case larger
        /// Of a URL: two GETs with different URLs each get their own image.
        case download(String)
        /// Of whatever link of the origin has a picture, asked one after another (``UpstreamChain``).
        case chain
        /// The picture that this image key's is made from, in the image key that holds it.
        case source(SourceKey)
        /// Its making, from the picture of that digest.
        case render(ImageDigest)

        /// What fetches that.
        init(_ target: DownloadTarget) { self = target.others.isEmpty ? .download(target.url) : .chain }

        var isDownload: Bool {
            switch self {
            case .download, .chain: true
            case .read, .larger, .source, .render: false
            }
        }
    }

    /// How an image key's image is asked for that another's is made from: requests that ask alike wait together.
    struct SourceKey: Hashable, Sendable {
        let imageKey: ImageKey
        /// The URL that a client named.
        let named: String?
        let download: ImageQuery.Download
    }

    let imageKey: ImageKey
    let work: Work
    let number: UInt64
}

struct Flight: Sendable {
    var id: FlightID
    var waiters: Deque<Waiter> = []
    /// To stop it; nil until it has started, and for a look, which is not stopped but ignored.
    var handle: (any DownloadHandle)?
    /// A stale image to fall back on should the origin fail, and for a waiter whose time is up; of a rendition under
    /// way its source.
    var held: ServedImage?
    /// The image that the origin is asked to confirm or to replace; nil where it is asked for one whatever is held. Its
    /// bytes are kept here, so that a 304 finds them though they were evicted meanwhile. While the source of a rendition
    /// is looked for: the rendition that is held, which may be that of an older one.
    var basis: Image?
    /// Who waits in the source's image key for this flight, and larger than the number of any change of it before.
    var inner: WaiterID?
    var asked: UInt64 = 0
    /// Where it is asked for; nil for a look.
    var target: DownloadTarget?
    /// The URL that the image held came from.
    var heldURL: String?
    /// Whether the image key held nothing, or what this download would replace, when it began and holds nothing newer since:
    /// then the origin's word that there is none empties the image key. Of another URL it says nothing of the image held.
    var ownsImageKey = false
    /// Names the grace that began when the last waiter left.
    var grace: UInt64?
    /// Started to refresh what was already served: nobody needs to wait for it.
    var isBackground = false

    /// Takes one waiter out; nil when it is not here.
    mutating func remove(_ id: WaiterID) -> Waiter? {
        waiters.firstIndex { $0.id == id }.map { waiters.remove(at: $0) }
    }

    var isAbandoned: Bool { waiters.isEmpty && !isBackground }

    /// The image that the image key held when it began, as far as that is known here.
    var known: Image? { held?.image ?? basis }

    /// Whether what came is something else than what is known to have been held. What is not kept changes nothing where
    /// nothing was: whoever asked for it at each change would have it downloaded for ever.
    func isChange(to image: Image, isHeld: Bool) -> Bool {
        guard let known else { return isHeld }
        return !isHeld || known.record.digest != image.record.digest
    }
}

/// All that goes on in one image key of a user's cache at this moment.
struct ImageKeyState: Sendable {
    var flights: [FlightID.Work: Flight] = [:]
    /// A downloaded image that its waiters already have and that is on its way to the disk. Whoever asks meanwhile
    /// gets it from here, which is from memory.
    var storing: Storing?
    /// The download that said that what is held is not to be served again, while that is being removed.
    var dropping: FlightID?
    var puts = PendingPuts()
    /// The image key whose image this one's is made from, where one is being made or was.
    var source: ImageKey?

    struct Storing: Sendable {
        let flight: FlightID
        let served: ServedImage
        /// Whether the disk has these bytes already, with older dates.
        let isConfirmed: Bool
    }

    var isIdle: Bool { flights.isEmpty && storing == nil && dropping == nil && puts.count == 0 }
}

/// PUTs of one image key between their first byte and their last. Sequence numbers are given in the order of arrival, so that
/// what memory and disk hold in the end is one and the same PUT, and none that a purge overtook.
struct PendingPuts: Sendable {
    var count = 0
    /// Ticket of the newest PUT whose entry is on disk.
    var committed: UInt64 = 0
    /// Ticket of the newest purge: what began before it must not appear any more.
    var purged: UInt64 = 0

    enum Verdict: Sendable {
        case commit
        /// A newer PUT is already on disk; this one counts as put and replaced.
        case superseded
        /// A purge came in between.
        case cancelled
    }

    func verdict(on sequence: UInt64) -> Verdict {
        if sequence < purged { return .cancelled }
        return sequence < committed ? .superseded : .commit
    }
}

extension RequestCoordinator {
    /// How a download ended, judged.
    enum DownloadResult: Sendable {
        case image(Image, storable: Bool)
        /// The image that the download was conditional on still holds, with what is now known of it.
        case confirmed(Image, storable: Bool)
        /// There is none for the tokens of that family; remember that until this moment (seconds since 1970).
        case missing(until: Int64, family: UInt32)
        /// A definite response to the tokens of that family, without a usable image; remembered until that moment.
        case unusable(CacheFailure, until: Int64, family: UInt32)
        case failed(CacheFailure)

        /// The image that is to be held from now on.
        var storable: Image? {
            switch self {
            case .image(let image, storable: true), .confirmed(let image, storable: true): image
            case .image, .confirmed, .missing, .unusable, .failed: nil
            }
        }

        /// The negative entry that a response without an image leaves.
        var negativeAnswer: NegativeAnswer? {
            switch self {
            case .missing(let until, _): NegativeAnswer(until: until)
            case .unusable(let failure, let until, _):
                NegativeReason(failure).map { NegativeAnswer(until: until, reason: $0) }
            case .image, .confirmed, .failed: nil
            }
        }

        /// What whoever waited for it is told.
        var source: ServedImage.Source {
            if case .confirmed = self { .revalidated } else { .origin }
        }
    }
}
