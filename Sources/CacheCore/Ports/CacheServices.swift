import NIOCore

/// What every user's cache is handed: the parts of the program that it works with. Made once, where all is wired.
public struct CacheServices: Sendable {
    public let store: any ImageStore
    public let fetcher: any ImageFetching
    public let tokens: any TokenFetching
    /// Nil where nobody makes pictures of other sizes: then they are served as they come.
    public let renderer: (any ImageRendering)?
    public let memory: MemoryTier
    /// What the daemon keeps because of each uid counts here.
    public let budget: MemoryBudget
    /// For reads and writes of images.
    public let disk: any BlockingPool
    /// Where they wait to be written.
    public let writes: WriteBehind
    /// For log-ins, so that none waits behind reads.
    public let lifecycle: any BlockingPool
    /// For all that purges and log-outs ask the disk, pending ones and their markers too: they wait behind no log-in.
    public let invalidations: any BlockingPool
    /// Where tasks run. Each is started with it as its preference, never where the runtime would run it (F75).
    public let tasks: any TaskExecutor
    public let time: any Timekeeping
    public let framing: ReplyFraming
    public let counters: CacheCounters
    /// Where what happens to a user is told.
    public let events: EventHub
    /// Between the steps of what nobody waits for.
    public let yield: YieldToOthers
    /// Looked at anew for each use, since a reload may change them.
    public let settings: @Sendable () -> CacheSettings

    public init(
        store: any ImageStore, fetcher: any ImageFetching, tokens: any TokenFetching,
        renderer: (any ImageRendering)? = nil, memory: MemoryTier,
        budget: MemoryBudget, disk: any BlockingPool, writes: WriteBehind,
        lifecycle: any BlockingPool, invalidations: any BlockingPool, tasks: any TaskExecutor, time: any Timekeeping,
        framing: ReplyFraming, counters: CacheCounters, events: EventHub, yield: @escaping YieldToOthers,
        settings: @escaping @Sendable () -> CacheSettings
    ) {
        self.store = store
        self.fetcher = fetcher
        self.tokens = tokens
        self.renderer = renderer
        self.memory = memory
        self.budget = budget
        self.disk = disk
        self.writes = writes
        self.lifecycle = lifecycle
        self.invalidations = invalidations
        self.tasks = tasks
        self.time = time
        self.framing = framing
        self.counters = counters
        self.events = events
        self.yield = yield
        self.settings = settings
    }
}

/// What a reload may change.
public struct CacheSettings: Sendable {
    /// By name; `default` is asked when a log-in names none.
    public var origins: [String: Origin]
    /// Bytes of one image.
    public var imageLimit: Int
    /// Pixels, either way.
    public var dimensionLimit: Int
    public var usersPerUID: Int
    public var sessionsPerUser: Int
    /// Missing images remembered per user.
    public var negativeEntries: Int
    /// Downloads of one user that may wait for an access token.
    public var downloadsWaiting: Int
    /// Pictures made in other sizes that are kept of a profile.
    public var renditionsPerProfile: Int
    /// Width times height of a picture that is made in another size.
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

/// Threads that may block, so that event loops need not.
public protocol BlockingPool: Sendable {
    /// Runs `work` soon. What one uid submits begins in the order of submission; between uids it is by turns.
    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void)
}

extension BlockingPool {
    /// Runs blocking work and waits for its result without blocking the caller's thread.
    public func value<Value: Sendable>(for uid: UInt32, _ work: @escaping @Sendable () -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            submit(for: uid) { continuation.resume(returning: work()) }
        }
    }

    /// The same for work that may fail.
    public func run<Value: Sendable>(
        for uid: UInt32, _ work: @escaping @Sendable () throws -> Value
    ) async throws(CacheFailure) -> Value {
        try await value(for: uid) { Result(catching: work).mapError { CacheFailure($0) } }.get()
    }
}

/// Time as the domain needs it, handed in so that tests decide what time it is.
public protocol Timekeeping: Sendable {
    /// Seconds since 1970: the wall clock as it stood at the start, and from then on a clock that nobody sets and that
    /// does not stop while the machine sleeps. So whoever sets the machine's clock makes nothing expire and nothing
    /// immortal (F14). Cheap enough for every request.
    var now: Int64 { get }

    /// The wall clock at this moment: seconds since 1970. Only to compare with what other machines say of the time.
    var wallClock: Int64 { get }

    /// Milliseconds of a clock that nobody sets, since some moment.
    var uptime: Int64 { get }

    /// Runs `work` once, so many milliseconds from now by a clock that nobody sets, unless cancelled before.
    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any Timer
}

/// Work that waits for its moment.
public protocol Timer: Sendable {
    /// Idempotent; without effect once the work has begun.
    func cancel()
}
