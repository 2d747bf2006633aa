import CacheCore
import NIOConcurrencyHelpers
import NIOCore

/// A store in memory whose steps can be held, failed, counted and logged. Its contents survive ``restarted()``.
public final class FakeStore: ImageStore {
    /// Steps that can be held or failed. The log contains their raw values.
    public enum Step: String, Sendable {
        case load, uids, users, countUsers, makeDurable, commitLogin, commitSessions, commitPurge, commitLogout
        case read, readCached, remove, drop
        /// A cached read has read the entry and left the generation store. Cannot fail.
        case cachedReadEnded
        /// A write has begun.
        case seal
        /// A write is about to be committed, before it takes the commit lock.
        case appear
        /// Eviction after a committed write, in the background. Cannot fail.
        case makeRoom
        /// A generation store rejects new work and waits for work in flight. Cannot fail.
        case close
        /// The generation store's keys are wiped. Cannot fail.
        case wipe
        /// The generation's directory is moved to the trash. Cannot fail.
        case discard
    }

    private struct State {
        var gates: [Step: Gate] = [:]
        var failures: [Step: (times: Int, error: StoreError, isAfterEffect: Bool)] = [:]
        var calls: [Step: Int] = [:]
        var violations: [String] = []
    }

    /// The contents that survive a restart.
    final class Disk: Sendable {
        struct Login {
            var record: LoginRecord
            var generation: Int
        }

        struct Contents {
            var logins: [Owner: Login] = [:]
            var images: [Int: [ImageKey: Kept]] = [:]
            var lastGeneration = 0
        }

        struct Kept: Sendable {
            let record: ImageRecord
            let bytes: ByteBuffer
        }

        let contents = NIOLockedValueBox(Contents())
    }

    public let startNumber: UInt64
    public let log: EventLog
    let disk: Disk
    /// Whether usage is known directly after the start.
    let isCounted: Bool
    private let state = NIOLockedValueBox(State())
    private let pageCache = NIOLockedValueBox(false)
    private let generationStores = NIOLockedValueBox<[Owner: FakeGenerationStore]>([:])

    public convenience init(log: EventLog = EventLog()) {
        self.init(startNumber: 1, disk: Disk(), log: log, isCounted: true)
    }

    private init(startNumber: UInt64, disk: Disk, log: EventLog, isCounted: Bool) {
        self.startNumber = startNumber
        self.disk = disk
        self.log = log
        self.isCounted = isCounted
    }

    /// The store after a restart with the same disk. Usage is not counted yet, and logins without a durable session
    /// have ended.
    public func restarted() -> FakeStore {
        disk.contents.withLockedValue { contents in
            contents.logins = contents.logins.filter { !$0.value.record.sessions.isEmpty }
        }
        return FakeStore(startNumber: startNumber + 1, disk: disk, log: log, isCounted: false)
    }

    // MARK: Control by tests

    /// Holds every call at this step until the gate is opened.
    @discardableResult
    public func hold(_ step: Step) -> Gate {
        let gate = Gate()
        state.withLockedValue { $0.gates[step] = gate }
        return gate
    }

    /// Opens and removes the gate at a step.
    public func release(_ step: Step) {
        state.withLockedValue { $0.gates.removeValue(forKey: step) }?.open()
    }

    /// Whether cached reads find the entries on disk. Default: false.
    public var isInPageCache: Bool {
        get { pageCache.withLockedValue { $0 } }
        set { pageCache.withLockedValue { $0 = newValue } }
    }

    /// Makes the next calls of a step fail.
    /// - Parameter afterEffect: the call takes effect and then fails, as a failed fsync may.
    public func fail(_ step: Step, times: Int = 1, with error: StoreError = .failed("EIO"), afterEffect: Bool = false) {
        state.withLockedValue { $0.failures[step] = (times, error, afterEffect) }
    }

    public func calls(_ step: Step) -> Int {
        state.withLockedValue { $0.calls[step, default: 0] }
    }

    /// Violations of ``ImageStore``'s contract by its callers. Must be empty at the end of every test.
    public var violations: [String] { state.withLockedValue { $0.violations } }

    /// Labels of the images that the owner's current generation holds on disk, sorted.
    public func held(by owner: Owner) -> [String] {
        disk.contents.withLockedValue { contents in
            guard let login = contents.logins[owner] else { return [] }
            return (contents.images[login.generation] ?? [:]).values.map { SampleImage.label(of: $0.bytes) }.sorted()
        }
    }

    /// The login record on disk.
    public func login(of owner: Owner) -> LoginRecord? {
        disk.contents.withLockedValue { $0.logins[owner]?.record }
    }

    // MARK: Steps

    /// Counts the step, waits at its gate, and throws its failure. Returns a failure that the caller throws after the
    /// step has taken effect.
    func pass(_ step: Step) throws -> StoreError? {
        log.record(step.rawValue)
        let gate = state.withLockedValue { state in
            state.calls[step, default: 0] += 1
            return state.gates[step]
        }
        gate?.pass()
        let failure: (error: StoreError, isAfterEffect: Bool)? = state.withLockedValue { state in
            guard let failure = state.failures[step], failure.times > 0 else { return nil }
            state.failures[step]?.times -= 1
            return (failure.error, failure.isAfterEffect)
        }
        guard let failure else { return nil }
        if failure.isAfterEffect { return failure.error }
        throw failure.error
    }

    /// Counts a step that cannot fail, and waits at its gate.
    func note(_ step: Step) {
        log.record(step.rawValue)
        let gate = state.withLockedValue { state in
            state.calls[step, default: 0] += 1
            return state.gates[step]
        }
        gate?.pass()
    }

    func violation(_ reason: String) {
        state.withLockedValue { $0.violations.append(reason) }
    }

    // MARK: ImageStore

    public var epochBase: UInt64 { startNumber << 32 }

    public func load(_ owner: Owner) throws -> (record: LoginRecord, generationStore: any GenerationStore)? {
        if let late = try pass(.load) { throw late }
        guard let login = disk.contents.withLockedValue({ $0.logins[owner] }) else { return nil }
        return (login.record, open(owner, login.generation))
    }

    public func uids() throws -> [UInt32] {
        if let late = try pass(.uids) { throw late }
        return Set(disk.contents.withLockedValue { $0.logins.keys.map(\.uid) }).sorted()
    }

    public func users(of uid: UInt32) throws -> [OpaqueID] {
        if let late = try pass(.users) { throw late }
        return disk.contents.withLockedValue { $0.logins.keys.filter { $0.uid == uid }.map(\.user) }
    }

    /// Removes a login from disk, as if its file were damaged.
    public func forgetLogin(of owner: Owner) { disk.contents.withLockedValue { $0.logins[owner] = nil } }

    public func countUsers(of uid: UInt32) throws -> Int {
        if let late = try pass(.countUsers) { throw late }
        return disk.contents.withLockedValue { $0.logins.keys.count { $0.uid == uid } }
    }

    public func makeDurable(_ uid: UInt32) throws {
        if let late = try pass(.makeDurable) { throw late }
    }

    public func commitLogin(_ owner: Owner, _ login: LoginRecord) throws -> any GenerationStore {
        let late = try pass(.commitLogin)
        let generation = disk.contents.withLockedValue { contents in
            if contents.logins[owner] != nil { violation("commitLogin of an owner who is logged in") }
            contents.lastGeneration += 1
            contents.logins[owner] = Disk.Login(record: login, generation: contents.lastGeneration)
            return contents.lastGeneration
        }
        if let late { throw late }
        return open(owner, generation)
    }

    public func commitSessions(_ owner: Owner, _ login: LoginRecord) throws {
        let late = try pass(.commitSessions)
        disk.contents.withLockedValue { contents in
            if contents.logins[owner] == nil { violation("commitSessions of an owner who is not logged in") }
            contents.logins[owner]?.record = login
        }
        if let late { throw late }
    }

    public func commitPurge(_ owner: Owner) throws -> any GenerationStore {
        mustBeClosed(owner, before: .commitPurge)
        let late = try pass(.commitPurge)
        let generation = disk.contents.withLockedValue { contents in
            if contents.logins[owner] == nil { violation("commitPurge of an owner who is not logged in") }
            contents.lastGeneration += 1
            contents.logins[owner]?.generation = contents.lastGeneration
            return contents.lastGeneration
        }
        if let late { throw late }
        return open(owner, generation)
    }

    public func commitLogout(_ owner: Owner) throws {
        mustBeClosed(owner, before: .commitLogout)
        let late = try pass(.commitLogout)
        disk.contents.withLockedValue { $0.logins[owner] = nil }
        if let late { throw late }
    }

    public func digest(of image: ByteBuffer) -> ImageDigest {
        SampleImage.digest(of: image)
    }

    private func open(_ owner: Owner, _ generation: Int) -> FakeGenerationStore {
        let generationStore = FakeGenerationStore(store: self, owner: owner, generation: generation)
        let earlier = generationStores.withLockedValue { $0.updateValue(generationStore, forKey: owner) }
        if let earlier, !earlier.isWiped {
            violation("a generation store was opened while an earlier one had its keys")
        }
        return generationStore
    }

    private func mustBeClosed(_ owner: Owner, before step: Step) {
        guard let generationStore = generationStores.withLockedValue({ $0[owner] }) else { return }
        if !generationStore.isWiped { violation("\(step) before the keys of the old generation were wiped") }
    }

    /// Whether the owner's key file names that generation.
    func isNamed(_ generation: Int, of owner: Owner) -> Bool {
        disk.contents.withLockedValue { $0.logins[owner]?.generation == generation }
    }
}
