import CacheFakes
import NIOConcurrencyHelpers
import NIOCore

@testable import CacheCore

/// A ``RequestCoordinator`` with what a test says to it in a few words. Effects come back as short sentences, so that a
/// race reads as a list of what happened and what followed.
struct CoordinatorBench {
    /// A moment in the middle of nowhere.
    static let start: Int64 = 1_000_000
    static let imageKey = ImageKey(profile: OpaqueID("bob"), size: 64)
    /// Where the template leads for ``imageKey``.
    static let usual = "https://origin.test/bob"

    var coordinator: RequestCoordinator
    var now = CoordinatorBench.start
    /// What memory holds in ``imageKey``.
    var memory: Image?
    var route: RequestCoordinator.Route = .success(DownloadTarget(url: CoordinatorBench.usual, isNamedByClient: false))
    private(set) var waiters: [String: WaiterID] = [:]
    private(set) var flights: [String: FlightID] = [:]
    private(set) var lastGrace: UInt64 = 0
    private(set) var handles: [String: FakeHandle] = [:]
    /// Profiles of which subscribers were to be told, in order.
    private(set) var changed: [String] = []

    init(absenceLimit: Int = 100) {
        coordinator = RequestCoordinator(
            negativeCache: NegativeCache(limit: absenceLimit, memory: MemoryBudget().lease(for: 1000)))
    }

    // MARK: What happens

    /// A GET by somebody with a name.
    mutating func get(
        _ name: String, url: String? = nil, download: ImageQuery.Download = .awaited, larger: Bool = false,
        imageKey: ImageKey = CoordinatorBench.imageKey
    ) -> [String] {
        let id = WaiterID(number: coordinator.nextNumber())
        waiters[name] = id
        let named = url.map { DownloadTarget(url: $0, isNamedByClient: true) }
        let waiter = Waiter(
            id: id, query: ImageQuery(imageKey: imageKey, named: named, download: download, largerWillDo: larger)
        ) { _ in }
        let held = memory.map { ServedImage($0, from: .memory, at: now) }
        return tell(coordinator.get(waiter, memory: held, route: route, now: now))
    }

    /// The look on disk has ended; with nothing, unless an image is given.
    mutating func readEnds(_ image: Image? = nil, flight: FlightID? = nil) -> [String]? {
        guard let id = flight ?? flights["read"] else { return nil }
        return coordinator.readEnded(id, image: image, route: route, now: now).map { tell($0) }
    }

    /// The look for a larger image has ended; with nothing, unless an image is given.
    mutating func largerEnds(
        _ image: Image? = nil, in imageKey: ImageKey = ImageKey(profile: CoordinatorBench.imageKey.profile, size: 96),
        isConclusive: Bool = true
    ) -> [String] {
        let found = image.map { (image: ServedImage($0, from: .disk, at: now), imageKey: imageKey) }
        return tell(
            coordinator.largerEnded(flight("larger"), found: found, isConclusive: isConclusive, route: route, now: now))
    }

    /// The fetcher has taken a download, which can be stopped from now on.
    mutating func starts(_ url: String = CoordinatorBench.usual, flight: FlightID? = nil) -> [String] {
        let handle = FakeHandle(url: url)
        handles[url] = handle
        return tell(coordinator.downloadStarted(flight ?? self.flight(url), handle: handle))
    }

    mutating func finishes(
        _ result: RequestCoordinator.DownloadResult, url: String = CoordinatorBench.usual, flight: FlightID? = nil
    ) -> [String]? {
        guard let id = flight ?? flights[url] else { return nil }
        return coordinator.downloadEnded(id, result, route: route, now: now).map { tell($0) }
    }

    /// The origin said "not modified" of something that is not held.
    mutating func asksAgain(flight: FlightID? = nil) -> [String] {
        let target = DownloadTarget(url: Self.usual, isNamedByClient: false)
        return tell(coordinator.askAgain(flight ?? self.flight(Self.usual), target))
    }

    mutating func leaves(_ name: String) -> [String] {
        guard let id = waiters[name] else { return ["nobody"] }
        return tell(coordinator.leave(id))
    }

    mutating func expires(_ name: String) -> [String] {
        guard let id = waiters[name] else { return ["nobody"] }
        return tell(coordinator.expire(id))
    }

    mutating func putCommits(_ image: Image, sequence: UInt64) -> [String] {
        tell(coordinator.putCommitted(CoordinatorBench.imageKey, sequence: sequence, image, now: now))
    }

    mutating func purge(_ profile: String = "bob") -> (cancelled: Int, effects: [String]) {
        let ended = coordinator.purge(profile: OpaqueID(profile))
        return (ended.cancelled, tell(ended.effects))
    }

    mutating func end(_ failure: CacheFailure = .cancelled) -> (cancelled: Int, effects: [String]) {
        let ended = coordinator.end(failure)
        return (ended.cancelled, tell(ended.effects))
    }

    /// The grace that began last is over, or an earlier one.
    mutating func graceEnds(_ number: UInt64? = nil) -> [String] {
        tell(coordinator.graceEnded(flight("grace"), number ?? lastGrace))
    }

    /// The last flight that did that; one that never was where there was none.
    func flight(_ key: String) -> FlightID { flights[key] ?? FlightID(imageKey: Self.imageKey, work: .read, number: 0) }

    // MARK: What follows

    /// Effects as sentences; remembers the numbers of flights by what they do.
    mutating func tell(_ effects: [RequestCoordinator.Effect]) -> [String] {
        effects.compactMap { effect in
            switch effect {
            case .changed(let imageKey):
                changed.append(imageKey.profile.text)
                return nil
            case .answer(let waiter, let outcome):
                let name = waiters.first { $0.value == waiter.id }?.key ?? "nobody"
                return "\(name): \(Self.tell(outcome))"
            case .read(let flight):
                flights["read"] = flight
                return "read"
            case .findLarger(let flight):
                flights["larger"] = flight
                return "find larger"
            case .findSource(let flight, _):
                flights["source"] = flight
                return "find source"
            case .render(let flight, let source):
                flights["render"] = flight
                return "render \(source.label)"
            case .download(let flight, let target):
                flights[target.url] = flight
                let basis = coordinator.basis(flight)
                return "download \(target.url)\(basis.map { " unless it is \($0.label)" } ?? "")"
            case .cancel(let handle):
                return "cancel \((handle as? FakeHandle)?.url ?? "what?")"
            case .store(let flight):
                flights["store"] = flight
                return "store \(coordinator.storing(flight.imageKey)?.image.label ?? "nothing")"
            case .drop(let flight):
                flights["drop"] = flight
                return "drop"
            case .grace(let flight, let number):
                (flights["grace"], lastGrace) = (flight, number)
                return if case .download(let url) = flight.work { "grace \(url)" } else { "grace" }
            }
        }
    }

    static func tell(_ outcome: GetOutcome) -> String {
        switch outcome {
        case .success(let served?): "\(served.image.label) from \(served.source)\(served.isStale ? ", stale" : "")"
        case .success(nil): "null"
        case .failure(.timedOut): "timeout"
        case .failure(.origin(let reason)): "origin \(reason)"
        case .failure(let failure): failure.name
        }
    }
}

/// A download that can be stopped, and nothing else.
struct FakeHandle: DownloadHandle {
    let url: String

    func cancel() {}
}

extension Image {
    /// An image of that label, stored at `storedAt`: an hour fresh, ten minutes served while revalidated, until an hour
    /// past its life served on errors.
    static func sample(
        _ label: String, from url: String? = CoordinatorBench.usual, storedAt: Int64 = CoordinatorBench.start,
        lifetime: Int64? = 3_600, size: Int = 128, etag: String? = nil
    ) -> Image {
        let bytes = SampleImage.png(label, size: size)
        let record = ImageRecord(
            shape: ImageShape(kind: .png, width: 16, height: 16), digest: SampleImage.digest(of: bytes),
            provenance: url.map { .url($0) } ?? .put,
            freshness: Freshness(
                storedAt: storedAt, lifetime: lifetime, staleWhileRevalidate: 600, staleIfError: 3_600),
            fields: StoredFields(etag: etag))
        return Image(record: record, bytes: ImageBytes(copying: bytes, framing: .bare))
    }

    var label: String { SampleImage.label(of: bytes.image) }
}

extension RequestCoordinator.DownloadResult {
    /// For the tokens of a bench.
    static func missing(until: Int64) -> Self { .missing(until: until, family: 0) }
}

extension RequestCoordinator {
    /// Whether nothing goes on, and nobody waits.
    var isIdle: Bool { activity.isEmpty && waits.isEmpty }
}

extension RequestCoordinator.Route {
    static func failure(_ failure: CacheFailure) -> RequestCoordinator.Route { .init { .failure(failure) } }
}
