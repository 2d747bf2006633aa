import DaemonServer
import DiskStore
import Glibc
import ImageFetcher
import LinuxSupport
import Logging
import NIOCore
import RESP
import SocketLoops
import ThumbcacheProtocol
import ThumbnailCache

/// The composition root: makes everything once, in the order in which one part needs another, and hands it on.
enum Daemon {
    /// Threads for reads and writes of images.
    private static var diskThreads: Int { 8 }
    /// Threads for log-ins.
    private static var lifecycleThreads: Int { 4 }
    /// Threads for purges and log-outs.
    private static var endingThreads: Int { 2 }
    /// Threads for what these do between their waits for the disk, which is microseconds.
    private static var taskThreads: Int { 2 }
    /// The one that writes downloaded images and the store's own among them.
    static var allDiskThreads: Int { diskThreads + lifecycleThreads + endingThreads + 2 }
    /// Seconds in which those for whom the daemon is started have it for themselves: beside the sweep of ten thousand users the first
    /// hit came 3 ms later on one core, after 27 ms instead of 24; on two, 1 ms.
    private static var restAtStart: Double { 0.5 }

    /// Serves until SIGTERM or SIGINT. Called on the main thread, which it blocks.
    static func run(_ setup: DaemonSetup, _ wanted: Configuration) throws {
        let live = LiveConfiguration(wanted)
        let log = logger(setup, live)
        let notifier = SystemdNotifier(environment: setup.environment)
        let accounts = LiveAccounts(log: log)
        accounts.read()
        let accountOf: @Sendable (UInt32) -> UInt32 = { accounts.account(of: $0) }
        let (configuration, descriptors) = try DescriptorLimit.fit(
            wanted, diskThreads: allDiskThreads, log: log)
        live.replace(by: configuration)

        // The store first: its locks say whether this daemon may be at all.
        try makeDirectories(configuration)
        let store = try DiskStore(
            configuration: configuration.store(
                openDirectories: descriptors.directories, openEntries: descriptors.entries),
            accountOf: accountOf, yield: backgroundYield().yield, log: log)
        try settleBoot(store, setup, configuration, log)
        try store.start(after: restAtStart)
        let fetcher = CurlImageFetcher(configuration: configuration.fetcher, log: log)
        try fetcher.start()

        let tasks = try TaskThreads(named: "tasks", count: taskThreads)
        let group = try SocketLoopGroup(threads: configuration.threads)
        let disk = try pool("disk", threads: diskThreads, accountOf)
        let judging = try pool("judging", threads: 1, accountOf)
        let writing = try pool("writing", threads: 1, accountOf)
        let lifecycle = try pool("log-ins", threads: lifecycleThreads, accountOf)
        let endings = try pool("log-outs", threads: endingThreads, accountOf)
        let time = SystemTime(group: group)
        let memory = MemoryTier(capacity: configuration.memory.tier)
        let framing = ReplyFraming(
            writePrefix: { ByteBuffer.writeBulkPrefix(count: $0, toEndOf: $1) }, suffix: ByteBuffer.bulkSuffix)
        let writes = WriteBehind(
            writer: writing, time: time, yield: backgroundYield().yield, limits: .init(tier: memory.capacity)
        ) { fetcher.isBusy }
        let budget = MemoryBudget(limits: { live.current.memoryLimits }, accountOf: accountOf)
        let services = CacheServices(
            store: store, fetcher: fetcher, tokens: fetcher, memory: memory, budget: budget, disk: disk,
            judging: judging,
            writes: writes, lifecycle: lifecycle, endings: endings, tasks: tasks, time: time,
            framing: framing, counters: CacheCounters(), yield: backgroundYield().yield,
            settings: { live.current.cacheSettings })
        let sessions = UserSessions(services: services, log: log)
        let logout = EndingService(sessions: sessions, log: log)
        let pendingLogouts = store.logoutMarkers.map {
            PendingLogouts(markers: $0, logout: logout, services: services, log: log)
        }
        let registry = PeerRegistry { accounts.account(ofPeer: $0, at: nanoseconds(), lookingOn: disk) }
        let info = serverInfo(
            sessions: sessions, services: services, store: store, fetcher: fetcher, registry: registry, live: live)
        let context = ServerContext(
            services: services, sessions: sessions, endingService: logout, pendingLogouts: pendingLogouts, info: info,
            registry: registry, loops: group, limits: { live.current.serverLimits }, log: log)

        try tasks.wait { try await honour(pendingLogouts) }
        let socket = try DaemonSocket(setup, configuration, pid: getpid())
        let watchdog = Self.watchdog(
            notifier, loops: group, fetcher: fetcher, disk: disk, lifecycle: lifecycle, endings: endings,
            tasks: tasks, time: time, log: log)
        watchdog?.start()
        pendingLogouts?.watch()
        try Serving(
            socket: socket, context: context, admins: configuration.adminRule, overflowUID: overflowUID(log),
            reload: Reload(
                setup: setup, live: live, accounts: accounts, fetcher: fetcher, notifier: notifier, log: log),
            notifier: notifier, log: log
        ).run(on: tasks)

        // From the last to the first.
        try tasks.wait { await pendingLogouts?.stop() }
        fetcher.shutdown()
        store.shutdown()
        watchdog?.stop()
        for pool in [disk, judging, writing, lifecycle, endings] { pool.stop() }
        try tasks.wait { await group.end() }
    }

    private static func logger(_ setup: DaemonSetup, _ live: LiveConfiguration) -> Logger {
        let isJournal = Journal.isBehind(STDERR_FILENO, setup.environment["JOURNAL_STREAM"])
        return Logger(label: "thumbcached") { label in
            StructuredLog(
                label: label, threshold: { setup.logLevel ?? live.current.configuration.log.level },
                isJournal: isJournal)
        }
    }

    /// Everybody's log-out, where a boot is one. Before a log-in is read.
    private static func settleBoot(
        _ store: DiskStore, _ setup: DaemonSetup, _ configuration: Configuration, _ log: Logger
    ) throws {
        let endsLogins = configuration.sessions.purgeOnBoot
        do {
            try store.settleBoot(
                try KernelFacts.bootID(environment: setup.environment), endsLogins: endsLogins)
        } catch {
            if endsLogins { throw StartError.boot("\(error)") }
            // Nothing hangs on it today; with purge-on-boot turned on, the next start counts as one after a boot.
            log.warning("which boot this is could not be recorded", metadata: ["reason": "\(error)"])
        }
    }

    private static func pool(
        _ name: String, threads: Int, _ accountOf: @escaping @Sendable (UInt32) -> UInt32
    ) throws -> FairPool {
        try FairPool(named: name, threads: threads, accountOf: accountOf, now: nanoseconds)
    }

    /// Of a clock that nobody sets.
    @Sendable private static func nanoseconds() -> Int64 { Int64(clamping: NIODeadline.now().uptimeNanoseconds) }

    /// One for each part: they do not know how long the others were kept.
    private static func backgroundYield() -> BackgroundYield {
        BackgroundYield(now: nanoseconds, giveWay: { _ = sched_yield() })
    }

    /// The uid that stands for those without a number here.
    private static func overflowUID(_ log: Logger) -> UInt32 {
        do throws(SystemError) {
            return try KernelFacts.overflowUID()
        } catch {
            // Hidden by the unit, as a rule. Nobody who values a machine sets it to a real uid.
            log.debug("the overflow uid is taken to be the kernel's default", metadata: ["reason": "\(error)"])
            return KernelFacts.defaultOverflowUID
        }
    }

    /// The log-outs that came while there was no daemon. Before anybody is served.
    private static func honour(_ pendingLogouts: PendingLogouts?) async throws {
        do throws(CacheFailure) {
            try await pendingLogouts?.honourAll()
        } catch {
            throw StartError.pendingLogouts(error)
        }
    }

    private static func makeDirectories(_ configuration: Configuration) throws(SystemError) {
        let storage = configuration.storage
        for path in [storage.cache, storage.state, storage.runtime].compactMap({ $0 }) {
            try Directories.make(path, mode: 0o700)
        }
    }
}
