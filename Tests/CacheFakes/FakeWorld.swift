import CacheCore
import NIOConcurrencyHelpers

/// All dependencies of a cache, made of fakes, with mutable settings.
public final class FakeWorld: Sendable {
    public let log: EventLog
    public let store: FakeStore
    public let fetcher: FakeFetcher
    public let tokens: FakeTokenEndpoint
    public let renderer: FakeRenderer?
    public let time: ManualTime
    public let services: CacheServices
    private let box: NIOLockedValueBox<CacheSettings>

    /// The origin `default`: fresh for an hour, then served during revalidation for ten minutes, and on errors for an
    /// hour.
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
    ///   - imagePool: the pool for reads and writes of images; runs work inline by default.
    ///   - writePool: the pool for queued writes; `imagePool` by default.
    ///   - loginPool: the pool for logins.
    ///   - invalidationPool: the pool for purges and logouts; `loginPool` by default.
    ///   - memory: the capacity of the memory tier in bytes.
    ///   - yield: called between the steps of background work.
    ///   - writes: the limits of queued writes.
    public init(
        store: FakeStore? = nil, imagePool: any BlockingPool = ImmediatePool(),
        writePool: (any BlockingPool)? = nil, loginPool: any BlockingPool = ImmediatePool(),
        invalidationPool: (any BlockingPool)? = nil,
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
            writer: writePool ?? imagePool, time: time, yield: yield, limits: writes ?? .init(tier: memory)
        ) { [fetcher] in fetcher.isBusy }
        self.services = CacheServices(
            store: self.store, fetcher: fetcher, tokens: tokens, renderer: renderer,
            memory: MemoryTier(capacity: memory), budget: budget, imagePool: imagePool, writes: behind,
            loginPool: loginPool, invalidationPool: invalidationPool ?? loginPool, tasks: tasks, time: time,
            framing: .bare, counters: CacheCounters(), events: EventHub(), yield: yield,
            settings: { box.withLockedValue { $0 } })
    }
}

extension CacheSettings {
    public init(origins: [String: Origin]) {
        self.init(
            origins: origins, imageLimit: 5 << 20, dimensionLimit: 8192, usersPerUID: 10_000, sessionsPerUser: 64,
            negativeEntries: 100_000, downloadsWaiting: 1_088)
    }
}
