import CacheCore
import CacheFakes
import LinuxSupport
import Logging
import NIOCore

/// One run of the daemon's domain, from its start to a crash.
final class Start: @unchecked Sendable {
    // Unchecked: see Scheduler.
    let scheduler: Scheduler
    let disk: DiskControl
    let world: FakeWorld
    let sessions: UserSessions
    let invalidations: InvalidationService
    let pendingLogouts: PendingLogouts
    /// Where event loops look up entries in the page cache.
    let loops: SimulatedPool
    var downloads: [RunningDownload] = []
    var renders: [FakeRenderer.Request] = []
    var tokenRequests: [FakeTokenRequest] = []
    var isStopped = false

    struct RunningDownload {
        let download: FakeDownload
        /// The number of its image.
        let image: Int
        var isCancelled: Bool { download.isCancelled }
    }

    init(
        _ store: FakeStore, _ disk: DiskControl, _ scheduler: Scheduler, pending: FakePendingLogoutFiles, memory: Int,
        now: Int64
    ) {
        self.scheduler = scheduler
        self.disk = disk
        loops = SimulatedPool(threads: 2, scheduler)
        world = FakeWorld(
            store: store, imagePool: SimulatedPool(threads: 3, scheduler),
            writePool: SimulatedPool(threads: 1, scheduler), loginPool: SimulatedPool(threads: 2, scheduler),
            invalidationPool: SimulatedPool(threads: 2, scheduler), tasks: scheduler, memory: memory,
            time: ManualTime(now: now), renderer: FakeRenderer(), settings: Self.settings)
        let log = Logger(label: "simulation") { _ in SwiftLogNoOpLogHandler() }
        sessions = UserSessions(services: world.services, log: log)
        invalidations = InvalidationService(sessions: sessions, log: log)
        pendingLogouts = PendingLogouts(
            pendingFiles: pending, invalidationService: invalidations, services: world.services, log: log)
    }

    /// Origins with and without sizes, with tokens, and a chain.
    static let origins = ["default", "plain", "chain"]

    private static let settings: CacheSettings = {
        var plain = FakeWorld.origin
        (plain.name, plain.url) = ("plain", "https://plain.test/{user}/{profile}")
        plain.tokenEndpoint = TokenEndpoint(url: "https://plain.test/token", clientID: "simulation")
        var chain = FakeWorld.origin
        chain.name = "chain"
        chain.url = "https://chain.test/{user}/{profile}/{size}"
        chain.then = [Upstream(url: "https://second.test/{user}/{profile}/{size}")]
        return CacheSettings(origins: ["default": FakeWorld.origin, "plain": plain, "chain": chain])
    }()

    /// Ends all work after a crash, so that its memory is released. Nothing of it has an effect any more.
    func endAllWork() {
        disk.hasCrashed = true
        world.time.cancelAll()
        while true {
            while !scheduler.isIdle { scheduler.runOne() }
            let (downloads, renders, tokens) = (downloads, renders, tokenRequests)
            (self.downloads, self.renders, tokenRequests) = ([], [], [])
            for running in downloads { running.download.end(.failed(.shuttingDown)) }
            for render in renders { render.fail(.unavailable) }
            for request in tokens { request.end(.failure(.shuttingDown)) }
            if scheduler.isIdle, downloads.isEmpty, renders.isEmpty, tokens.isEmpty { break }
        }
        world.time.cancelAll()
        world.store.forgetGenerationStores()
        scheduler.releaseStacks()
    }
}

/// Decides the steps of the disk of one start.
final class DiskControl: FakeStoreController, @unchecked Sendable {
    // Unchecked: see Scheduler.
    private let dice: Dice
    private let plan: Plan
    private let scheduler: Scheduler
    private let sabotage: Sabotage?
    private let onChange: (FakeStore.Change) -> Void
    private let onFailedRead: () -> Void
    private let note: (@autoclosure () -> String) -> Void
    var hasCrashed = false
    var hasFaults = true
    private(set) var faults = 0

    init(
        _ dice: Dice, _ plan: Plan, _ scheduler: Scheduler, _ sabotage: Sabotage?,
        onChange: @escaping (FakeStore.Change) -> Void, onFailedRead: @escaping () -> Void,
        note: @escaping (@autoclosure () -> String) -> Void
    ) {
        (self.dice, self.plan, self.scheduler, self.sabotage) = (dice, plan, scheduler, sabotage)
        (self.onChange, self.onFailedRead, self.note) = (onChange, onFailedRead, note)
    }

    func decide(_ step: FakeStore.Step) -> FakeStore.Decision {
        if hasCrashed { return .proceed }
        // Repeatedly, so that whole commands run meanwhile.
        while step != .remove, dice.happens(plan.wait) { scheduler.wait() }
        note("disk: \(step)")
        if hasCrashed || !hasFaults { return .proceed }
        switch step {
        case .commitLogin, .commitSessions, .commitPurge, .commitLogout, .remove:
            guard fails(plan.failedCommit) else { return .proceed }
            return dice.happens(512) ? .fail(.failed("EIO")) : .failAfterEffect(.failed("EIO"))
        case .makeDurable:
            return fails(plan.failedCommit) ? .fail(.failed("EIO")) : .proceed
        case .load, .uids, .users, .countUsers:
            return fails(plan.failedLookup) ? .fail(.failed("EIO")) : .proceed
        case .read:
            guard fails(plan.failedRead) else { return .proceed }
            onFailedRead()
            return .fail(.failed("EIO"))
        case .seal, .appear, .drop:
            guard fails(plan.failedWrite) else { return .proceed }
            return .fail(dice.happens(512) ? .noSpace("ENOSPC") : .failed("EIO"))
        case .readCached, .cachedReadEnded, .makeRoom, .close, .wipe, .discard:
            return .proceed
        }
    }

    private func fails(_ share: Int) -> Bool {
        guard dice.happens(share) else { return false }
        faults += 1
        note("disk: fails")
        return true
    }

    func pretends(_ step: FakeStore.Step) -> Bool {
        switch sabotage {
        case .forgottenLogout: step == .commitLogout || step == .discard
        case .oldGeneration: step == .commitPurge || step == .discard
        case .forgottenRemoval: step == .remove
        case .forgottenWrite: step == .appear
        default: false
        }
    }

    func changed(_ change: FakeStore.Change) {
        if !hasCrashed { onChange(change) }
    }

    func wait() { scheduler.wait() }
}

extension FakeStore.Change {
    /// For a trace.
    var summary: String {
        switch self {
        case .login(let owner): "login of \(owner.uid) \(owner.user.text)"
        case .purge(let owner): "purge of \(owner.uid) \(owner.user.text)"
        case .logout(let owner): "logout of \(owner.uid) \(owner.user.text)"
        case .removal(let owner, let profile): "removal of \(owner.uid) \(owner.user.text) \(profile.text)"
        case .image(let owner, let imageKey, let bytes):
            "image \(SampleImage.label(of: bytes)) of \(owner.uid) \(owner.user.text) \(imageKey.profile.text)"
        }
    }
}
