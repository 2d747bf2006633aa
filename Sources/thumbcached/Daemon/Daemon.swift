import CLinux
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

/// The composition root: creates each part once, after the parts that it needs.
enum Daemon {
    /// Threads that read images and write those of PUT.
    private static var imageThreads: Int { 8 }
    private static var loginThreads: Int { 4 }
    private static var invalidationThreads: Int { 2 }
    private static var writeThreads: Int { 2 }
    private static var maintenanceThreads: Int { 1 }
    /// Threads for tasks, which run for microseconds between waits for the disk.
    private static var taskThreads: Int { 2 }
    static var allDiskThreads: Int {
        imageThreads + loginThreads + invalidationThreads + writeThreads + maintenanceThreads
    }
    /// Seconds after the start without background work. With ten thousand users, the sweep would delay the first hit by
    /// 3 ms on one core.
    private static var restAtStart: Double { 0.5 }

    /// Serves until SIGTERM or SIGINT. Blocks the main thread.
    /// - Parameter logLevel: overrides the configuration's.
    static func run(
        _ requested: Configuration, environment: [String: String], logLevel: Logger.Level?,
        reload: @escaping @Sendable () throws -> Configuration
    ) throws {
        let live = LiveConfiguration(requested)
        let log = Logger(label: "thumbcached") { label in
            StructuredLog(
                label: label, threshold: { logLevel ?? live.withLockedValue { $0.log.level } },
                isJournal: Journal.isConnected(STDERR_FILENO, to: environment["JOURNAL_STREAM"]),
                metadataProvider: RequestID.metadata)
        }
        log.info("configuration read", metadata: ["file": "\(requested.file ?? "none")"])
        requested.logWarnings(log)
        let accounts = LiveAccounts(log: log)
        accounts.read()
        let (configuration, descriptors) = try DescriptorBudget.raiseLimitAndFit(requested, log: log)
        live.withLockedValue { $0 = configuration }

        let passedSocket = try SocketActivation(environment: environment).descriptor()
        let socketDirectory = passedSocket == nil ? configuration.socket.path.map { parent(of: $0) } : nil
        try makeDirectories(configuration, socketDirectory)
        // Before confine(), after which no thread can start a program.
        let helpers = try helpers(configuration, environment, log)
        try confine(configuration, socketDirectory, log)
        // The memory tier keeps most images from disk, so that the pool would not get their buffers back.
        let replyBuffers = configuration.memory.tier == 0 ? BufferPool() : BufferPool(limit: 0)
        // Its locks prevent a second daemon.
        let store = try DiskStore(
            configuration: configuration.store(descriptors), accountOf: { accounts.account(of: $0) },
            yield: backgroundYield().yield, buffers: replyBuffers, log: log)
        try endLoginsOfEarlierBoot(store, environment, configuration, log)
        // Then releases the memory of the names of all images, and program pages that only the start uses.
        try store.start(
            after: restAtStart,
            whenCounted: {
                clinux_trim_heap()
                clinux_release_program_pages()
            })
        let fetcher = try FetcherClient(
            settings: configuration.fetcher(logLevel: logLevel), connector: helpers.fetcher, log: log)
        try fetcher.start()

        let group = try SocketLoopGroup(threads: configuration.threads, sentBuffers: replyBuffers)
        let parts = try makeParts(configuration, live, accounts, store, fetcher, helpers.renderer, group, log)
        try processPendingLogouts(parts)
        let socket = try DaemonSocket(configuration.socket, passed: passedSocket)
        let notifier = SystemdNotifier(environment: environment)
        let watchdog = watchdog(for: parts, notifier, log)
        watchdog?.start()
        parts.pendingLogouts?.watch(
            by: PendingLogoutDirectoryWatch(
                path: configuration.sessions.pendingLogouts, loop: parts.group.loops[0], log: log))
        try Serving(
            socket: socket, context: parts.context, access: configuration.access, ownUID: geteuid(),
            overflowUID: overflowUID(log),
            reload: Reload(
                load: reload, live: live, accounts: accounts, fetcher: fetcher, logLevel: logLevel, log: log),
            notifier: notifier, log: log
        ).run(on: parts.tasks)
        try stop(parts, watchdog)
    }

    private static func makeDirectories(_ configuration: Configuration, _ socketDirectory: String?) throws {
        for path in [configuration.storage.cache, configuration.storage.state, configuration.storage.runtime] {
            if let path { try LinuxSupport.makeDirectories(path, mode: 0o700) }
        }
        if let socketDirectory { try LinuxSupport.makeDirectories(socketDirectory, mode: 0o755) }
    }

    /// Logs out all users after a boot if `sessions.purge-on-boot` is set. Runs before any login is read.
    private static func endLoginsOfEarlierBoot(
        _ store: DiskStore, _ environment: [String: String], _ configuration: Configuration, _ log: Logger
    ) throws {
        let endsLogins = configuration.sessions.purgeOnBoot
        do {
            let bootID = try KernelFacts.bootID(environment: environment)
            try store.endLoginsOfEarlierBoot(than: bootID, endsLogins: endsLogins)
        } catch {
            if endsLogins {
                throw DaemonError("cannot log out all users after a boot, so the daemon does not start: \(error)")
            }
            // Without the record, a later start with purge-on-boot logs out all users.
            log.warning("boot id not recorded", metadata: ["reason": "\(error)"])
        }
    }

    /// The parts that serve requests.
    private struct Parts {
        let store: DiskStore
        let fetcher: FetcherClient
        let renderer: RendererClient?
        let tasks: TaskThreads
        let group: SocketLoopGroup
        let imagePool, loginPool, invalidationPool, writePool: FairPool
        let renditionPool: FairPool?
        let time: SystemTime
        let pendingLogouts: PendingLogouts?
        let context: ServerContext
    }

    private static func makeParts(
        _ configuration: Configuration, _ live: LiveConfiguration, _ accounts: LiveAccounts, _ store: DiskStore,
        _ fetcher: FetcherClient, _ rendererConnector: (any HelperConnector)?, _ group: SocketLoopGroup, _ log: Logger
    ) throws -> Parts {
        let accountOf: @Sendable (UInt32) -> UInt32 = { accounts.account(of: $0) }
        let tasks = try TaskThreads(named: "tasks", count: taskThreads)
        func pool(_ name: String, threads: Int, perAccount: Int? = nil) throws -> FairPool {
            try FairPool(
                named: name, threads: threads, perAccount: perAccount, accountOf: accountOf, now: monotonicNanoseconds)
        }
        let imagePool = try pool("images", threads: imageThreads)
        // All writes count for one uid; WriteBehind schedules between accounts.
        let writePool = try pool("writes", threads: writeThreads, perAccount: writeThreads)
        let loginPool = try pool("logins", threads: loginThreads)
        let invalidationPool = try pool("invalidations", threads: invalidationThreads)
        let renditionPool = try rendererConnector.map { _ in
            try pool("renditions", threads: max(2, sysconf(CInt(_SC_NPROCESSORS_ONLN))))
        }
        let time = SystemTime(group: group)
        let renderer = rendererConnector.flatMap { connector in
            renditionPool.map { RendererClient(connector: connector, pool: $0, time: time, log: log) }
        }
        let memory = MemoryTier(capacity: configuration.memory.tier)
        let framing = ReplyFraming(
            writePrefix: { ByteBuffer.writeBulkPrefix(count: $0, toEndOf: $1) }, suffix: ByteBuffer.bulkSuffix)
        var writeLimits = WriteBehind.Limits(tier: memory.capacity)
        writeLimits.writers = writeThreads
        let writes = WriteBehind(
            writer: writePool, time: time, yield: backgroundYield().yield, limits: writeLimits
        ) { fetcher.isBusy }
        let budget = MemoryBudget(limits: { live.withLockedValue { $0.limits.memory } }, accountOf: accountOf)
        let services = CacheServices(
            store: store, fetcher: fetcher, tokens: fetcher, renderer: renderer, memory: memory,
            budget: budget, imagePool: imagePool, writes: writes, loginPool: loginPool,
            invalidationPool: invalidationPool, tasks: tasks, time: time, framing: framing, counters: CacheCounters(),
            events: EventHub(), yield: backgroundYield().yield, settings: { live.withLockedValue { $0.cacheSettings } })
        let sessions = UserSessions(services: services, log: log)
        let invalidationService = InvalidationService(sessions: sessions, log: log)
        let pendingLogouts = store.pendingLogoutFiles.map {
            PendingLogouts(pendingFiles: $0, invalidationService: invalidationService, services: services, log: log)
        }
        let registry = PeerRegistry { accounts.account(ofPeer: $0, at: monotonicNanoseconds(), readingOn: imagePool) }
        let latencies = Latencies(loops: group.loops.count)
        let metrics = DaemonMetrics(
            services: services, store: { store.statistics }, fetch: { fetcher.statistics },
            origins: { live.withLockedValue { $0.origins }.keys.sorted() }, registry: registry, latencies: latencies,
            started: monotonicNanoseconds())
        let readStatistics: @Sendable () async -> Void = { await fetcher.readStatistics() }
        let context = ServerContext(
            services: services, sessions: sessions, invalidationService: invalidationService,
            pendingLogouts: pendingLogouts,
            info: metrics.info(readStatistics: readStatistics, epoch: { sessions.epoch(of: $0) }),
            metrics: ServerMetrics(prepare: readStatistics) { metrics.all(sessions.figures(of: nil)) },
            latencies: latencies, registry: registry, loops: group,
            limits: { live.withLockedValue { $0.limits.server } }, log: log)
        return Parts(
            store: store, fetcher: fetcher, renderer: renderer, tasks: tasks, group: group, imagePool: imagePool,
            loginPool: loginPool, invalidationPool: invalidationPool, writePool: writePool,
            renditionPool: renditionPool, time: time, pendingLogouts: pendingLogouts, context: context)
    }

    /// Performs the logouts that were requested while no daemon ran, before any client is served.
    private static func processPendingLogouts(_ parts: Parts) throws {
        do {
            try parts.tasks.wait { try await parts.pendingLogouts?.processAll() }
        } catch {
            // The users of the failed logout are unknown, so no image may be served (I4).
            throw DaemonError("cannot process a pending logout, so the daemon does not start: \(error)")
        }
    }

    private static func watchdog(for parts: Parts, _ notifier: SystemdNotifier, _ log: Logger) -> Watchdog? {
        notifier.watchdogInterval.map { interval in
            Watchdog(
                checks: Watchdog.checks(
                    loops: parts.group, tasks: parts.tasks, fetcher: parts.fetcher,
                    pools: [
                        ("images", parts.imagePool), ("logins", parts.loginPool),
                        ("invalidations", parts.invalidationPool),
                    ]),
                pause: interval, time: parts.time,
                feed: { try notifier.send(.watchdog, atOnce: true) }, log: log)
        }
    }

    private static func stop(_ parts: Parts, _ watchdog: Watchdog?) throws {
        try parts.tasks.wait { await parts.pendingLogouts?.stop() }
        parts.fetcher.shutdown()
        // The watchdog runs until here: if shutdown() hangs, systemd kills the daemon.
        watchdog?.stop()
        parts.renderer?.shutdown()
        for pool in [parts.renditionPool, parts.imagePool, parts.writePool, parts.loginPool, parts.invalidationPool] {
            pool?.stop()
        }
        // After the pools: pending eviction needs the store's locks.
        parts.store.shutdown()
        // Last: the other parts call back on the loops.
        try parts.tasks.wait { await parts.group.end() }
    }

    @Sendable static func monotonicNanoseconds() -> Int64 { nanoseconds(of: CLOCK_MONOTONIC) }

    /// A new one for each part, since it measures the part's own work.
    private static func backgroundYield() -> BackgroundYield {
        BackgroundYield(now: monotonicNanoseconds, giveWay: { _ = sched_yield() })
    }

    /// The uid that represents uids without a number in this user namespace.
    private static func overflowUID(_ log: Logger) -> UInt32 {
        do {
            return try KernelFacts.overflowUID()
        } catch {
            // The packaged unit hides /proc/sys. The default is right unless the administrator changed overflowuid.
            log.debug("overflow uid unreadable; using the kernel's default", metadata: ["reason": "\(error)"])
            return KernelFacts.defaultOverflowUID
        }
    }
}

struct DaemonError: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
