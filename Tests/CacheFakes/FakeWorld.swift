import CacheCore
import NIOConcurrencyHelpers

/// All that a cache is handed, made of fakes, with the settings in a box that a test may change.
public final class FakeWorld: Sendable {
    public let log: EventLog
    public let store: FakeStore
    public let fetcher: FakeFetcher
    public let tokens: FakeTokenEndpoint
    /// Nil unless a test hands one in.
    public let renderer: FakeRenderer?
    public let time: ManualTime
    public let services: CacheServices
    private let box: NIOLockedValueBox<CacheSettings>

    /// An origin `default` whose freshness windows are small round numbers: an hour fresh, then ten minutes served
    /// while revalidated, then until an hour past its life served on errors.
    public static let origin: Origin = {
        var origin = Origin(name: "default", url: "https://origin.test/{user}/{profile}/{size}")
        origin.allow = ["https://other.test/"]
        (origin.defaultTTL, origin.staleWhileRevalidate, origin.staleIfError) = (3_600, 600, 3_600)
        return origin
    }()

    public var settings: CacheSettings {
        get { box.withLockedValue { $0 } }
        set { box.withLockedValue { $0 = newValue } }
    }

    /// - Parameters:
    ///   - disk: where images are read and written; work runs at once unless another pool is given.
    ///   - lifecycle: where log-ins run.
    ///   - endings: where purges and log-outs run; where log-ins do unless another pool is given.
    ///   - tasks: where tasks run; in the runtime's own pool unless another is given.
    ///   - memory: bytes of the memory tier.
    ///   - yield: called between the steps of what nobody waits for.
    ///   - writes: how much may wait to be written.
    public init(
        store: FakeStore? = nil, disk: any BlockingPool = ImmediatePool(),
        lifecycle: any BlockingPool = ImmediatePool(), invalidations: (any BlockingPool)? = nil,
        tasks: any TaskExecutor = globalConcurrentExecutor, memory: Int = 1 << 20, time: ManualTime = ManualTime(),
        yield: @escaping YieldToOthers = {}, writes: WriteBehind.Limits? = nil,
        budget: MemoryBudget = MemoryBudget(), renderer: FakeRenderer? = nil,
        settings: CacheSettings = CacheSettings(origins: ["default": FakeWorld.origin])
    ) {
        let log = store?.log ?? EventLog()
        let box = NIOLockedValueBox(settings)
        self.log = log
        self.box = box
        self.store = store ?? FakeStore(log: log)
        self.fetcher = FakeFetcher(log: log)
        self.tokens = FakeTokenEndpoint(log: log)
        self.renderer = renderer
        self.time = time
        let behind = WriteBehind(
            writer: disk, time: time, yield: yield, limits: writes ?? .init(tier: memory)
        ) { [fetcher] in fetcher.isBusy }
        self.services = CacheServices(
            store: self.store, fetcher: fetcher, tokens: tokens, renderer: renderer,
            memory: MemoryTier(capacity: memory), budget: budget, disk: disk, writes: behind, lifecycle: lifecycle,
            invalidations: invalidations ?? lifecycle,
            tasks: tasks, time: time, framing: .bare, counters: CacheCounters(), events: EventHub(),
            yield: yield,
            settings: { box.withLockedValue { $0 } })
    }
}

extension CacheSettings {
    /// As a daemon has them that is configured with origins alone.
    public init(origins: [String: Origin]) {
        self.init(
            origins: origins, imageLimit: 5 << 20, dimensionLimit: 8192, usersPerUID: 10_000, sessionsPerUser: 64,
            negativeEntries: 100_000, downloadsWaiting: 1_088)
    }
}
