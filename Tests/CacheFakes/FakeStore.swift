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

    /// How a step ends.
    public enum Decision: Sendable {
        case proceed
        case fail(StoreError)
        /// The step takes effect in the page cache and then fails, as a failed fsync may: a power cut may undo it.
        case failAfterEffect(StoreError)
    }

    /// A change on disk that a step is about to report.
    public enum Change: Sendable {
        case login(Owner)
        case purge(Owner)
        case logout(Owner)
        case removal(Owner, OpaqueID)
        case image(Owner, ImageKey, ByteBuffer)
    }

    private struct State {
        var gates: [Step: Gate] = [:]
        var failures: [Step: (times: Int, error: StoreError, isAfterEffect: Bool)] = [:]
        var calls: [Step: Int] = [:]
        var violations: [String] = []
        /// Failed logins that the next lookup undoes (F74).
        var incomplete: Set<Owner> = []
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
            /// What a power cut may restore: logins before changes that are not durable, nil for none.
            var earlierLogins: [Owner: Login?] = [:]
            /// Entries before their last change, which is never synced, nil for none.
            var earlierImages: [Int: [ImageKey: Kept?]] = [:]

            mutating func setLogin(_ login: Login?, of owner: Owner, isDurable: Bool) {
                if isDurable {
                    earlierLogins[owner] = nil
                } else if earlierLogins[owner] == nil {
                    earlierLogins.updateValue(logins[owner], forKey: owner)
                }
                logins[owner] = login
            }

            mutating func setImage(_ image: Kept?, _ imageKey: ImageKey, of generation: Int) {
                earlierImages[generation, default: [:]].updateValue(images[generation]?[imageKey], forKey: imageKey)
                images[generation, default: [:]][imageKey] = image
            }

            /// Ends logins whose sessions belonged to connections, and removes what no login names.
            mutating func sweep() {
                logins = logins.filter { !$0.value.record.sessions.isEmpty }
                let earlier = earlierLogins.values.compactMap { $0?.generation }
                let live = Set(logins.values.map(\.generation) + earlier)
                images = images.filter { live.contains($0.key) }
                earlierImages = earlierImages.filter { live.contains($0.key) }
            }

            /// Undoes changes that are not durable, or not, at random. An entry may also be torn, which is a miss.
            mutating func losePower(using random: inout some RandomNumberGenerator) {
                for (owner, earlier) in earlierLogins where Bool.random(using: &random) { logins[owner] = earlier }
                for (generation, entries) in earlierImages {
                    for (imageKey, earlier) in entries {
                        switch Int.random(in: 0..<3, using: &random) {
                        case 0: images[generation]?[imageKey] = earlier
                        case 1: images[generation]?[imageKey] = nil
                        default: break
                        }
                    }
                }
                (earlierLogins, earlierImages) = ([:], [:])
            }
        }

        struct Kept: Sendable {
            let record: ImageRecord
            let bytes: ByteBuffer
        }

        let contents: NIOLockedValueBox<Contents>

        init(_ contents: Contents = Contents()) { self.contents = NIOLockedValueBox(contents) }
    }

    public let startNumber: UInt64
    public let log: EventLog
    let disk: Disk
    /// Whether usage is known directly after the start.
    let isCounted: Bool
    private let controller: (any FakeStoreController)?
    private let state = NIOLockedValueBox(State())
    private let pageCache = NIOLockedValueBox(false)
    private let generationStores = NIOLockedValueBox<[Owner: FakeGenerationStore]>([:])

    public convenience init(log: EventLog = EventLog(), controller: (any FakeStoreController)? = nil) {
        self.init(startNumber: 1, disk: Disk(), log: log, isCounted: true, controller)
    }

    private init(
        startNumber: UInt64, disk: Disk, log: EventLog, isCounted: Bool, _ controller: (any FakeStoreController)? = nil
    ) {
        self.controller = controller
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

    /// The store after a kill. It has a copy of the disk, so that calls of this store in progress have no effect on it.
    public func afterKill(controller: any FakeStoreController) -> FakeStore {
        afterCrash(controller) { _ in }
    }

    /// The store after a power cut, which undoes changes that are not durable at random.
    public func afterPowerCut(
        using random: inout some RandomNumberGenerator, controller: any FakeStoreController
    ) -> FakeStore {
        afterCrash(controller) { $0.losePower(using: &random) }
    }

    private func afterCrash(
        _ controller: any FakeStoreController, _ lose: (inout Disk.Contents) -> Void
    ) -> FakeStore {
        var contents = disk.contents.withLockedValue { $0 }
        lose(&contents)
        contents.sweep()
        return FakeStore(
            startNumber: startNumber + 1, disk: Disk(contents), log: log, isCounted: false, controller)
    }

    /// Releases the generation stores, which retain this store. Call it when the store is no longer used.
    public func forgetGenerationStores() { generationStores.withLockedValue { $0 = [:] } }

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
        if let controller {
            switch controller.decide(step) {
            case .proceed: return nil
            case .fail(let error): throw error
            case .failAfterEffect(let error): return error
            }
        }
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
        if let controller {
            _ = controller.decide(step)
            return
        }
        let gate = state.withLockedValue { state in
            state.calls[step, default: 0] += 1
            return state.gates[step]
        }
        gate?.pass()
    }

    /// Whether the step has no effect although it reports success.
    func isPretended(_ step: Step) -> Bool { controller?.pretends(step) == true }

    func changed(_ change: @autoclosure () -> Change) { controller?.changed(change()) }

    /// Waits until `isDone` returns true, if a controller can run the work that it waits for.
    func wait(until isDone: () -> Bool) {
        guard let controller else { return }
        while !isDone() { controller.wait() }
    }

    func violation(_ reason: String) {
        state.withLockedValue { $0.violations.append(reason) }
    }

    // MARK: ImageStore

    public var epochBase: UInt64 { startNumber << 32 }

    public func load(_ owner: Owner) throws -> (record: LoginRecord, generationStore: any GenerationStore)? {
        if let late = try pass(.load) { throw late }
        if state.withLockedValue({ $0.incomplete.remove(owner) }) != nil {
            disk.contents.withLockedValue { $0.setLogin(nil, of: owner, isDurable: true) }
        }
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
        disk.contents.withLockedValue { contents in
            for owner in contents.earlierLogins.keys where owner.uid == uid { contents.earlierLogins[owner] = nil }
        }
    }

    public func commitLogin(_ owner: Owner, _ login: LoginRecord) throws -> any GenerationStore {
        let late = try pass(.commitLogin)
        let generation = disk.contents.withLockedValue { contents in
            if contents.logins[owner] != nil { violation("commitLogin of an owner who is logged in") }
            contents.lastGeneration += 1
            let login = Disk.Login(record: login, generation: contents.lastGeneration)
            contents.setLogin(login, of: owner, isDurable: late == nil)
            return contents.lastGeneration
        }
        if let late {
            if controller != nil { state.withLockedValue { _ = $0.incomplete.insert(owner) } }
            throw late
        }
        changed(.login(owner))
        return open(owner, generation)
    }

    public func commitSessions(_ owner: Owner, _ login: LoginRecord) throws {
        let late = try pass(.commitSessions)
        disk.contents.withLockedValue { contents in
            guard var changed = contents.logins[owner] else {
                return violation("commitSessions of an owner who is not logged in")
            }
            changed.record = login
            contents.setLogin(changed, of: owner, isDurable: late == nil)
        }
        if let late { throw late }
    }

    public func commitPurge(_ owner: Owner) throws -> any GenerationStore {
        mustBeClosed(owner, before: .commitPurge)
        let late = try pass(.commitPurge)
        let generation = disk.contents.withLockedValue { contents in
            contents.lastGeneration += 1
            if var login = contents.logins[owner] {
                login.generation = contents.lastGeneration
                if !isPretended(.commitPurge) { contents.setLogin(login, of: owner, isDurable: late == nil) }
            } else {
                violation("commitPurge of an owner who is not logged in")
            }
            return contents.lastGeneration
        }
        if let late { throw late }
        changed(.purge(owner))
        return open(owner, generation)
    }

    public func commitLogout(_ owner: Owner) throws {
        mustBeClosed(owner, before: .commitLogout)
        let late = try pass(.commitLogout)
        if !isPretended(.commitLogout) {
            disk.contents.withLockedValue { $0.setLogin(nil, of: owner, isDurable: late == nil) }
        }
        if let late { throw late }
        changed(.logout(owner))
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

/// Controls a ``FakeStore`` from outside, as a simulator does. Replaces its gates and failures.
public protocol FakeStoreController: Sendable {
    /// Decides a step, which may wait meanwhile, except ``FakeStore/Step/remove``: it holds a lock.
    func decide(_ step: FakeStore.Step) -> FakeStore.Decision

    /// Whether the step has no effect although it reports success, as no disk may do. For tests of checkers.
    func pretends(_ step: FakeStore.Step) -> Bool

    /// Called when a change has taken effect, before the step returns.
    func changed(_ change: FakeStore.Change)

    /// Runs other work. Called repeatedly while a generation store waits for its operations to end.
    func wait()
}
