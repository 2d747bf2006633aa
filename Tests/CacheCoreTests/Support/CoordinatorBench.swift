import CacheFakes
import NIOConcurrencyHelpers
import NIOCore

@testable import CacheCore

/// A ``RequestCoordinator`` with short calls for its events. Effects are returned as text, so that a test reads as a
/// list of events and effects.
struct CoordinatorBench {
    static let start: Int64 = 1_000_000
    static let imageKey = ImageKey(profile: OpaqueID("bob"), size: 64)
    /// The URL of ``imageKey`` by the origin's template.
    static let usual = "https://origin.test/bob"

    var coordinator: RequestCoordinator
    var now = CoordinatorBench.start
    /// The image of ``imageKey`` in memory.
    var memory: Image?
    var route: RequestCoordinator.Route = .success(DownloadTarget(url: CoordinatorBench.usual, isNamedByClient: false))
    private(set) var waiters: [String: WaiterID] = [:]
    private(set) var flights: [String: FlightID] = [:]
    private(set) var lastGrace: UInt64 = 0
    private(set) var handles: [String: FakeHandle] = [:]
    /// Profiles for which subscribers were notified, in order.
    private(set) var changed: [String] = []

    init(absenceLimit: Int = 100) {
        coordinator = RequestCoordinator(
            negativeCache: NegativeCache(limit: absenceLimit, memory: MemoryBudget().lease(for: 1000)))
    }

    // MARK: Events

    /// A GET by a named waiter.
    mutating func get(
        _ name: String, url: String? = nil, download: ImageQuery.Download = .awaited,
        imageKey: ImageKey = CoordinatorBench.imageKey
    ) -> [String] {
        let id = WaiterID(number: coordinator.flights.nextNumber())
        waiters[name] = id
        let named = url.map { DownloadTarget(url: $0, isNamedByClient: true) }
        let waiter = Waiter(id: id, query: ImageQuery(imageKey: imageKey, named: named, download: download)) { _ in }
        let held = memory.map { ServedImage($0, from: .memory, at: now) }
        return describe(coordinator.get(waiter, memory: held, route: route, now: now))
    }

    /// Ends the disk lookup, without an image by default.
    mutating func readEnds(_ image: Image? = nil, flight: FlightID? = nil) -> [String]? {
        guard let id = flight ?? flights["read"] else { return nil }
        return coordinator.readEnded(id, image: image, route: route, now: now).map { describe($0) }
    }

    /// The fetcher has accepted a download.
    mutating func starts(_ url: String = CoordinatorBench.usual, flight: FlightID? = nil) -> [String] {
        let handle = FakeHandle(url: url)
        handles[url] = handle
        return describe(coordinator.downloadStarted(flight ?? self.flight(url), handle: handle))
    }

    mutating func finishes(
        _ result: RequestCoordinator.DownloadResult, url: String = CoordinatorBench.usual, flight: FlightID? = nil
    ) -> [String]? {
        guard let id = flight ?? flights[url] else { return nil }
        return coordinator.downloadEnded(id, result, route: route, now: now).map { describe($0) }
    }

    /// The origin returned a 304 for an image that is not stored.
    mutating func restarts(flight: FlightID? = nil) -> [String] {
        let target = DownloadTarget(url: Self.usual, isNamedByClient: false)
        return describe(coordinator.restartDownload(flight ?? self.flight(Self.usual), target))
    }

    mutating func leaves(_ name: String) -> [String] {
        guard let id = waiters[name] else { return ["unknown waiter"] }
        return describe(coordinator.leave(id))
    }

    mutating func expires(_ name: String) -> [String] {
        guard let id = waiters[name] else { return ["unknown waiter"] }
        return describe(coordinator.expire(id))
    }

    mutating func putCommits(_ image: Image, sequence: UInt64) -> [String] {
        describe(coordinator.putCommitted(CoordinatorBench.imageKey, sequence: sequence, image, now: now))
    }

    mutating func purge(_ profile: String = "bob") -> (cancelled: Int, effects: [String]) {
        let ended = coordinator.purge(profile: OpaqueID(profile))
        return (ended.cancelled, describe(ended.effects))
    }

    mutating func end(_ failure: CacheFailure = .cancelled) -> (cancelled: Int, effects: [String]) {
        let ended = coordinator.end(failure)
        return (ended.cancelled, describe(ended.effects))
    }

    /// Ends the last grace period, or the one with that number.
    mutating func graceEnds(_ number: UInt64? = nil) -> [String] {
        describe(coordinator.graceEnded(flight("grace"), number ?? lastGrace))
    }

    /// The last flight of that kind, or an unknown one.
    func flight(_ key: String) -> FlightID { flights[key] ?? FlightID(imageKey: Self.imageKey, work: .read, number: 0) }

    // MARK: Effects

    /// Formats effects as text and records their flight numbers.
    mutating func describe(_ effects: [RequestCoordinator.Effect]) -> [String] {
        effects.compactMap { effect in
            switch effect {
            case .changed(let imageKey):
                changed.append(imageKey.profile.text)
                return nil
            case .resolve(let waiter, let outcome):
                let name = waiters.first { $0.value == waiter.id }?.key ?? "unknown waiter"
                return "\(name): \(Self.describe(outcome))"
            case .read(let flight):
                flights["read"] = flight
                return "read"
            case .requestSource(let flight, _):
                flights["source"] = flight
                return "request source"
            case .render(let flight, let source):
                flights["render"] = flight
                return "render \(source.label)"
            case .download(let flight, let target):
                flights[target.url] = flight
                let basis = coordinator.basis(flight)
                return "download \(target.url)\(basis.map { " unless it is \($0.label)" } ?? "")"
            case .cancel(let handle):
                return "cancel \((handle as? FakeHandle)?.url ?? "unknown")"
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

    static func describe(_ outcome: Result<ServedImage?, CacheFailure>) -> String {
        switch outcome {
        case .success(let served?): "\(served.image.label) from \(served.source)\(served.isStale ? ", stale" : "")"
        case .success(nil): "null"
        case .failure(.timedOut): "timeout"
        case .failure(.origin(let reason)): "origin \(reason)"
        case .failure(let failure): failure.name
        }
    }
}

/// A handle whose cancellation has no effect.
struct FakeHandle: DownloadHandle {
    let url: String

    func cancel() {}
}

extension Image {
    /// An image with that label: fresh for an hour by default, then served during revalidation for ten minutes, and on
    /// errors for an hour.
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
    static func missing(until: Int64) -> Self { .missing(until: until, family: 0) }
}

extension RequestCoordinator {
    /// Whether there are no flights and no waiters.
    var isIdle: Bool { flights.isEmpty }
}

extension RequestCoordinator.Route {
    static func success(_ target: DownloadTarget?) -> RequestCoordinator.Route { .init { .success(target) } }
    static func failure(_ failure: CacheFailure) -> RequestCoordinator.Route { .init { .failure(failure) } }
}
