import CacheCore
import DaemonServer
import DiskStore
import Glibc
import HelperClient
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import ProgramSupport
import SocketLoops
import ThumbcacheProtocol

/// The composition root: makes everything once, in the order in which one part needs another, and hands it on.
enum Daemon {
    /// Threads for reads and writes of images.
    private static var diskThreads: Int { 8 }
    /// Threads for log-ins.
    private static var lifecycleThreads: Int { 4 }
    /// Threads for purges and log-outs.
    private static var invalidationThreads: Int { 2 }
    /// Threads for what these do between their waits for the disk, which is microseconds.
    private static var taskThreads: Int { 2 }
    /// The one that writes downloaded images and the store's own among them.
    static var allDiskThreads: Int { diskThreads + lifecycleThreads + invalidationThreads + 2 }
    /// Seconds in which those for whom the daemon is started have it for themselves: beside the sweep of ten thousand
    /// users the first hit came 3 ms later on one core, after 27 ms instead of 24; on two, 1 ms.
    private static var restAtStart: Double { 0.5 }

    /// Serves until SIGTERM or SIGINT. Called on the main thread, which it blocks.
    /// - Parameter logLevel: over the configuration's.
    static func run(
        _ wanted: Configuration, environment: [String: String], logLevel: Logger.Level?,
        reload: @escaping @Sendable () throws -> Configuration
    ) throws {
        let live = LiveConfiguration(wanted)
        let log = Logger(label: "thumbcached") { label in
            StructuredLog(
                label: label, threshold: { logLevel ?? live.withLockedValue { $0.log.level } },
                isJournal: Journal.isBehind(STDERR_FILENO, environment["JOURNAL_STREAM"]),
                metadataProvider: RequestID.metadata)
        }
        log.info("configuration read", metadata: ["file": "\(wanted.file ?? "none")"])
        wanted.logWarnings(log)
        let accounts = LiveAccounts(log: log)
        accounts.read()
        let accountOf: @Sendable (UInt32) -> UInt32 = { accounts.account(of: $0) }
        let (configuration, descriptors) = try DescriptorBudget.fit(wanted, log: log)
        live.withLockedValue { $0 = configuration }

        // The store first: its locks say whether this daemon may be at all.
        for path in [configuration.storage.cache, configuration.storage.state, configuration.storage.runtime] {
            if let path { try makeDirectories(path, mode: 0o700) }
        }
        // Before it gives up the right to start a program, and before any thread is there that would keep it.
        let helpers = try helpers(configuration, environment, log)
        try confine(configuration, environment, log)
        let store = try DiskStore(
            configuration: configuration.store(openDirectories: descriptors.directories),
            accountOf: accountOf, yield: backgroundYield().yield, log: log)
        try endWhatABootEnds(store, environment, configuration, log)
        try store.start(after: restAtStart)
        let fetcher = try FetcherClient(
            settings: configuration.fetcher(logLevel: logLevel), link: helpers.fetcher, log: log)
        try fetcher.start()

        let tasks = try TaskThreads(named: "tasks", count: taskThreads)
        let group = try SocketLoopGroup(threads: configuration.threads)
        func pool(_ name: String, threads: Int) throws -> FairPool {
            try FairPool(named: name, threads: threads, accountOf: accountOf, now: uptime)
        }
        let disk = try pool("disk", threads: diskThreads)
        let writing = try pool("writing", threads: 1)
        let lifecycle = try pool("log-ins", threads: lifecycleThreads)
        let invalidations = try pool("log-outs", threads: invalidationThreads)
        let rendering = try helpers.renderer.map { _ in
            try pool("renditions", threads: max(2, sysconf(CInt(_SC_NPROCESSORS_ONLN))))
        }
        let time = SystemTime(group: group)
        let renderer = helpers.renderer.flatMap { link in
            rendering.map { RendererClient(link: link, pool: $0, time: time, log: log) }
        }
        let memory = MemoryTier(capacity: configuration.memory.tier)
        let framing = ReplyFraming(
            writePrefix: { ByteBuffer.writeBulkPrefix(count: $0, toEndOf: $1) }, suffix: ByteBuffer.bulkSuffix)
        let writes = WriteBehind(
            writer: writing, time: time, yield: backgroundYield().yield, limits: .init(tier: memory.capacity)
        ) { fetcher.isBusy }
        let budget = MemoryBudget(limits: { live.withLockedValue { $0.memoryLimits } }, accountOf: accountOf)
        let services = CacheServices(
            store: store, fetcher: fetcher, tokens: fetcher, renderer: renderer, memory: memory,
            budget: budget, disk: disk, writes: writes, lifecycle: lifecycle, invalidations: invalidations,
            tasks: tasks,
            time: time, framing: framing, counters: CacheCounters(), events: EventHub(), yield: backgroundYield().yield,
            settings: { live.withLockedValue { $0.cacheSettings } })
        let sessions = UserSessions(services: services, log: log)
        let logout = InvalidationService(sessions: sessions, log: log)
        let pendingLogouts = store.logoutMarkers.map {
            PendingLogouts(markers: $0, logout: logout, services: services, log: log)
        }
        let registry = PeerRegistry { accounts.account(ofPeer: $0, at: uptime(), lookingOn: disk) }
        let info = serverInfo(
            sessions: sessions, services: services, store: store, fetcher: fetcher, registry: registry, live: live)
        let latencies = Latencies(loops: group.loops.count)
        let metrics = metrics(
            sessions: sessions, services: services, store: store, fetcher: fetcher, registry: registry,
            latencies: latencies, live: live)
        let context = ServerContext(
            services: services, sessions: sessions, invalidationService: logout, pendingLogouts: pendingLogouts,
            info: info,
            metrics: metrics, latencies: latencies, registry: registry, loops: group,
            limits: { live.withLockedValue { $0.serverLimits } }, log: log)

        // The log-outs that came while there was no daemon, before anybody is served.
        do {
            try tasks.wait { try await pendingLogouts?.processAll() }
        } catch {
            // I4: what a log-out is owed to must not be served, and there is no telling whom to keep closed.
            throw DaemonError("a pending log-out could not be honoured, so nobody is served: \(error)")
        }
        let socket = try DaemonSocket(configuration.socket, environment: environment)
        let notifier = SystemdNotifier(environment: environment)
        let watchdog = notifier.watchdogInterval.map { interval in
            Watchdog(
                checks: Watchdog.checks(
                    loops: group, tasks: tasks, fetcher: fetcher,
                    pools: [("images", disk), ("log-ins", lifecycle), ("log-outs", invalidations)]),
                pause: interval, time: time, feed: { try notifier.send(.watchdog, atOnce: true) }, log: log)
        }
        watchdog?.start()
        pendingLogouts?.watch(
            by: MarkerDirectoryWatch(path: configuration.sessions.pendingLogouts, loop: group.loops[0], log: log))
        try Serving(
            socket: socket, context: context, access: configuration.access, ownUID: geteuid(),
            overflowUID: overflowUID(log),
            reload: Reload(
                load: reload, live: live, accounts: accounts, fetcher: fetcher, logLevel: logLevel, log: log),
            notifier: notifier, log: log
        ).run(on: tasks)

        // From the last to the first.
        try tasks.wait { await pendingLogouts?.stop() }
        fetcher.shutdown()
        watchdog?.stop()
        renderer?.shutdown()
        for pool in [rendering, disk, writing, lifecycle, invalidations] { pool?.stop() }
        // Behind what a write leaves to be done: room that it makes is made while the locks are held.
        store.shutdown()
        try tasks.wait { await group.end() }
    }

    /// Everybody's log-out, where a boot is one. Before a log-in is read.
    private static func endWhatABootEnds(
        _ store: DiskStore, _ environment: [String: String], _ configuration: Configuration, _ log: Logger
    ) throws {
        let endsLogins = configuration.sessions.purgeOnBoot
        do {
            try store.recordBoot(try KernelFacts.bootID(environment: environment), endsLogins: endsLogins)
        } catch {
            if endsLogins {
                throw DaemonError("what a boot is to end could not be ended, so nobody is served: \(error)")
            }
            // Nothing hangs on it today; with purge-on-boot turned on, the next start counts as one after a boot.
            log.warning("which boot this is could not be recorded", metadata: ["reason": "\(error)"])
        }
    }

    /// Nanoseconds of a clock that nobody sets.
    @Sendable static func uptime() -> Int64 { nanoseconds(of: CLOCK_MONOTONIC) }

    /// One for each part: they do not know how long the others were kept.
    private static func backgroundYield() -> BackgroundYield {
        BackgroundYield(now: uptime, giveWay: { _ = sched_yield() })
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
}

/// Why the daemon does not start or ends, cannot take over a configuration, or cannot remove its socket.
struct DaemonError: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
