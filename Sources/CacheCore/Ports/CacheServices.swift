import NIOCore

/// The dependencies of every user's cache.
public struct CacheServices: Sendable {
    public let store: any ImageStore
    public let fetcher: any ImageFetching
    public let tokens: any TokenFetching
    /// Nil if no renderer is installed: images are then served in their original size.
    public let renderer: (any ImageRendering)?
    public let memory: MemoryTier
    /// Limits the memory that the daemon keeps for each account.
    public let budget: MemoryBudget
    /// Reads images, writes those of PUT, evaluates large responses, warms, and cleans up after purges and logouts.
    public let imagePool: any BlockingPool
    /// Writes downloaded images in the background.
    public let writes: WriteBehind
    /// Performs logins, looks users up on disk and stores refreshed tokens, which do not wait for reads.
    public let loginPool: any BlockingPool
    /// Performs purges, logouts and pending logouts, which do not wait for logins.
    public let invalidationPool: any BlockingPool
    /// The executor of all tasks, instead of the runtime's own pool (F75).
    public let tasks: any TaskExecutor
    public let time: any Timekeeping
    public let framing: ReplyFraming
    public let counters: CacheCounters
    /// Delivers events to subscribers.
    public let events: EventHub
    public let yield: YieldToOthers
    /// Called for each use, since a reload may change the settings.
    public let settings: @Sendable () -> CacheSettings

    public init(
        store: any ImageStore, fetcher: any ImageFetching, tokens: any TokenFetching,
        renderer: (any ImageRendering)? = nil, memory: MemoryTier,
        budget: MemoryBudget, imagePool: any BlockingPool, writes: WriteBehind,
        loginPool: any BlockingPool, invalidationPool: any BlockingPool, tasks: any TaskExecutor, time: any Timekeeping,
        framing: ReplyFraming, counters: CacheCounters, events: EventHub, yield: @escaping YieldToOthers,
        settings: @escaping @Sendable () -> CacheSettings
    ) {
        self.store = store
        self.fetcher = fetcher
        self.tokens = tokens
        self.renderer = renderer
        self.memory = memory
        self.budget = budget
        self.imagePool = imagePool
        self.writes = writes
        self.loginPool = loginPool
        self.invalidationPool = invalidationPool
        self.tasks = tasks
        self.time = time
        self.framing = framing
        self.counters = counters
        self.events = events
        self.yield = yield
        self.settings = settings
    }
}

/// Settings that a reload may change.
public struct CacheSettings: Sendable {
    /// By name; `default` is used when a login names none.
    public var origins: [String: Origin]
    public var imageLimit: Int
    /// The largest width and height, in pixels.
    public var dimensionLimit: Int
    public var usersPerUID: Int
    public var sessionsPerUser: Int
    public var negativeEntries: Int
    /// The number of downloads of one user that may wait for an access token.
    public var downloadsWaiting: Int
    public var renditionsPerProfile: Int
    /// The largest image that is rendered, in pixels (width times height).
    public var renditionPixels: Int

    public init(
        origins: [String: Origin], imageLimit: Int, dimensionLimit: Int, usersPerUID: Int, sessionsPerUser: Int,
        negativeEntries: Int, downloadsWaiting: Int, renditionsPerProfile: Int = 8, renditionPixels: Int = 50_000_000
    ) {
        self.origins = origins
        self.imageLimit = imageLimit
        self.dimensionLimit = dimensionLimit
        self.usersPerUID = usersPerUID
        self.sessionsPerUser = sessionsPerUser
        self.negativeEntries = negativeEntries
        self.downloadsWaiting = downloadsWaiting
        self.renditionsPerProfile = renditionsPerProfile
        self.renditionPixels = renditionPixels
    }
}

/// Threads for work that may block, which event loops must not do.
public protocol BlockingPool: Sendable {
    /// Enqueues `work`, charged to the uid's account. Within an account, work starts in the order of submission;
    /// accounts take turns.
    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void)
}

extension BlockingPool {
    public func value<Value: Sendable>(for uid: UInt32, _ work: @escaping @Sendable () -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            submit(for: uid) { continuation.resume(returning: work()) }
        }
    }

    public func run<Value: Sendable>(
        for uid: UInt32, _ work: @escaping @Sendable () throws -> Value
    ) async throws(CacheFailure) -> Value {
        try await value(for: uid) { Result(catching: work).mapError { CacheFailure($0) } }.get()
    }
}

public protocol Timekeeping: Sendable {
    /// Seconds since 1970, by a clock that starts with the wall clock, cannot be set, and continues during suspend.
    ///
    /// So setting the machine's clock neither expires nor preserves entries (F14). Cheap enough for every request.
    var now: Int64 { get }

    /// The wall clock, in seconds since 1970. Only for comparison with times from other machines.
    var wallClock: Int64 { get }

    /// Milliseconds of a monotonic clock that includes suspend (CLOCK_BOOTTIME).
    var uptime: Int64 { get }

    /// Runs `work` once, after that many milliseconds without suspend, unless it is cancelled before.
    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any Timer
}

public protocol Timer: Sendable {
    /// Idempotent. Has no effect once the work has begun.
    func cancel()
}
