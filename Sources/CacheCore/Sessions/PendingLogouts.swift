import Logging
import NIOConcurrencyHelpers

/// The pending-logout files, which logout hooks write while the daemon does not respond. Calls block on the disk.
public protocol PendingLogoutFiles: Sendable {
    /// Lists the files. Costs a directory listing and a stat(2) for each file.
    func pending() throws -> [PendingLogoutFile]

    /// Removes files durably.
    /// - Throws: if one of them may reappear after a restart.
    func remove(_ processed: [PendingLogoutFile]) throws
}

/// Reports new pending-logout files, so that an idle daemon need not list the directory at intervals.
public protocol PendingLogoutWatch: Sendable {
    /// Starts the watch, or renews it for the current directory. May block on the disk.
    /// - Parameter changed: called on any thread after each change of the directory; must not block.
    /// - Returns: whether every later file is reported. If not, the caller has to list the directory at intervals.
    func renew(_ changed: @escaping @Sendable () -> Void) -> Bool

    /// Ends the watch. ``renew(_:)`` does nothing afterwards.
    func end()
}

/// A file that requests the logout of all users of a uid.
public struct PendingLogoutFile: Hashable, Sendable {
    public let uid: UInt32
    /// Never reused for another file.
    public let name: String

    public init(uid: UInt32, name: String) {
        self.uid = uid
        self.name = name
    }
}

/// Processes pending-logout files: at startup before any request is served, before each login, and within a second of
/// their creation.
///
/// A file has no time that could be compared with that of a login, so the order of processing decides. A login waits
/// until the files of its uid are processed and removed. One task at a time processes the files of a uid, and lists
/// them after it has acquired the uid's lock: the users that it logs out had logged in before the file was found. Uids
/// do not wait for each other.
public final class PendingLogouts: Sendable {
    private struct State {
        /// The uids whose files are being processed, or about to be.
        var turns: [UInt32: Turn] = [:]
        /// The uids whose files a listing of ``watch(by:)`` found, until their logout succeeds.
        var watched: [UInt32: Watched] = [:]
        var watch: (any PendingLogoutWatch)?
        var listing = Listing.none
        /// Consecutive listings that failed.
        var failures = 0
        var isStopped = false
    }

    private enum Watched {
        case underWay(failures: Int)
        /// The logout failed that many times in a row, and is retried at this uptime.
        case failed(times: Int, retryAt: Int64)

        var failures: Int {
            switch self {
            case .underWay(let failures), .failed(let failures, _): failures
            }
        }
    }

    /// The next listing of ``watch(by:)``.
    private enum Listing {
        /// None is due before the directory changes.
        case none
        case due(at: Int64, any Timer)
        /// `next` is the uptime at which another listing is due because of changes during this one.
        case running(next: Int64?)
    }

    private struct Turn {
        let lock = AsyncFIFOLock()
        /// The number of tasks that hold the lock or wait for it.
        var users = 0
    }

    private let pendingFiles: any PendingLogoutFiles
    private let invalidationService: InvalidationService
    private let services: CacheServices
    private let log: Logger
    private let listing = SharedReading<[UInt32: [PendingLogoutFile]]>()
    private let state = NIOLockedValueBox(State())

    public init(
        pendingFiles: any PendingLogoutFiles, invalidationService: InvalidationService, services: CacheServices,
        log: Logger
    ) {
        self.pendingFiles = pendingFiles
        self.invalidationService = invalidationService
        self.services = services
        self.log = log
    }

    /// The uid that is charged for listing and removing files.
    private static var root: UInt32 { 0 }

    var waiting: Int { listing.waiting }

    func waiting(uid: UInt32) -> Int { state.withLockedValue { $0.turns[uid]?.lock.waiting ?? 0 } }

    /// Processes all files. Returns when the logouts are durable and the files are removed.
    /// - Throws: the first failure, after all uids have been tried. The files of failed logouts remain.
    public func processAll() async throws(CacheFailure) {
        let due = try await list().keys
        let failure = await withTaskGroup(of: CacheFailure?.self) { group in
            for uid in due {
                group.addTask {
                    do throws(CacheFailure) {
                        try await self.processInTurn(uid: uid)
                        return nil
                    } catch {
                        return error
                    }
                }
            }
            return await group.reduce(nil) { $0 ?? $1 }
        }
        if let failure { throw failure }
    }

    /// Processes the files of one uid before a login. Costs a directory listing, which concurrent logins share.
    /// - Throws: if the files of the uid could not be listed or processed. The login must then fail.
    public func process(uid: UInt32) async throws(CacheFailure) {
        // Check for a running task before listing: a task that starts later lists later, so it cannot remove a file
        // that this listing missed. Usually there is neither.
        let isIdle = state.withLockedValue { $0.turns[uid] == nil }
        if try await list()[uid] == nil, isIdle { return }
        try await processInTurn(uid: uid)
    }

    private func processInTurn(uid: UInt32) async throws(CacheFailure) {
        let turn = state.withLockedValue { state in
            state.turns[uid, default: Turn()].users += 1
            return state.turns[uid, default: Turn()].lock
        }
        defer {
            state.withLockedValue { state in
                state.turns[uid]?.users -= 1
                if state.turns[uid]?.users == 0 { state.turns[uid] = nil }
            }
        }
        try await turn.withLock { () async throws(CacheFailure) in
            if let due = try await list()[uid] { try await process(due, of: uid) }
        }
    }

    /// The files by uid, as of some moment after the call.
    private func list() async throws(CacheFailure) -> [UInt32: [PendingLogoutFile]] {
        try await listing.value { () async throws(CacheFailure) in
            // The directory is closed after the stop.
            if state.withLockedValue({ $0.isStopped }) { throw .shuttingDown }
            let found = try await services.invalidationPool.run(for: Self.root) { [pendingFiles] in
                try pendingFiles.pending()
            }
            return Dictionary(grouping: found, by: \.uid)
        }
    }

    /// Requires the uid's lock.
    private func process(_ due: [PendingLogoutFile], of uid: UInt32) async throws(CacheFailure) {
        do throws(CacheFailure) {
            let receipt = try await invalidationService.logOutAll(uid: uid)
            try await services.invalidationPool.run(for: Self.root) { [pendingFiles] in try pendingFiles.remove(due) }
            // Without users, the file usually belongs to a hook whose request is being answered.
            log.log(
                level: receipt.users > 0 ? .notice : .debug, "pending logout done",
                metadata: ["uid": "\(uid)", "users": "\(receipt.users)"])
        } catch {
            log.error(
                "pending logout failed, will retry",
                metadata: ["uid": "\(uid)", "reason": "\(error)"])
            throw error
        }
    }

    /// Milliseconds from a change of the directory to the listing. A hook that is answered in this time has removed its
    /// file by then, and a burst of changes causes one listing a second.
    private static let delay: Int64 = 1_000
    /// Milliseconds between failed listings, and between attempts to log out a uid.
    private static let backoff = Backoff(base: delay, most: 30_000)

    /// Processes files that are created while the daemon runs, for example by a hook whose request timed out.
    ///
    /// No timer runs while the directory is watched and no logout is pending.
    public func watch(by watch: any PendingLogoutWatch) {
        state.withLockedValue { state in
            state.watch = watch
            // Starts the watch, and finds earlier files.
            schedule(in: Self.delay, &state)
        }
    }

    var underWay: Int {
        state.withLockedValue { state in
            state.watched.values.count {
                if case .underWay = $0 { true } else { false }
            }
        }
    }

    var isListing: Bool {
        state.withLockedValue { state in
            if case .running = state.listing { true } else { false }
        }
    }

    /// Ends the watch. Returns when no listing or logout is running; none begins afterwards.
    public func stop() async {
        let (listed, watch, turns) = state.withLockedValue { state in
            state.isStopped = true
            return (state.listing, state.watch, state.turns.values.map(\.lock))
        }
        if case .due(_, let timer) = listed { timer.cancel() }
        watch?.end()
        await listing.ended()
        for turn in turns { await turn.withLock {} }
    }

    /// Schedules a listing in `delay` milliseconds, unless one is due sooner. Requires the lock.
    private func schedule(in delay: Int64, _ state: inout State) {
        if state.isStopped { return }
        let due = services.time.uptime + delay
        switch state.listing {
        case .none: break
        case .due(let earlier, let timer):
            if earlier <= due { return }
            timer.cancel()
        case .running(let next):
            state.listing = .running(next: min(next ?? due, due))
            return
        }
        let timer = services.time.after(milliseconds: max(0, delay)) {
            Task(executorPreference: self.services.tasks) { await self.listNow() }
        }
        state.listing = .due(at: due, timer)
    }

    private func changed() { state.withLockedValue { schedule(in: Self.delay, &$0) } }

    /// Lists the files and starts the logouts that are due. Does not wait for the logouts.
    private func listNow() async {
        let watch = state.withLockedValue { state -> (any PendingLogoutWatch)? in
            // A cancelled timer may have fired already.
            guard case .due(_, let timer) = state.listing, !state.isStopped else { return nil }
            timer.cancel()
            state.listing = .running(next: nil)
            return state.watch
        }
        guard let watch else { return }
        do throws(CacheFailure) {
            // Renewed before the listing: otherwise a file created between the two would be missed.
            let isWatched = try await services.invalidationPool.run(for: Self.root) { watch.renew { self.changed() } }
            let due = try await list().keys
            let uids = state.withLockedValue { startDue(Set(due), isWatched: isWatched, &$0) }
            for uid in uids { Task(executorPreference: services.tasks) { await self.processWatched(uid: uid) } }
        } catch {
            if error == .shuttingDown { return }
            log.error("failed to list pending logouts", metadata: ["reason": "\(error)"])
            state.withLockedValue { state in
                state.failures += 1
                scheduleNext(in: Self.backoff.ceiling(attempt: state.failures), &state)
            }
        }
    }

    private func scheduleNext(in delay: Int64?, _ state: inout State) {
        guard case .running(let next) = state.listing else { return }
        state.listing = .none
        if let delay { schedule(in: delay, &state) }
        if let next { schedule(in: next - services.time.uptime, &state) }
    }

    /// Returns the uids to log out now, without those in progress and those whose retry is not due.
    private func startDue(_ due: Set<UInt32>, isWatched: Bool, _ state: inout State) -> [UInt32] {
        let now = services.time.uptime
        var (begin, next): ([UInt32], Int64?) = ([], isWatched ? nil : Self.delay)
        state.failures = 0
        state.watched = state.watched.filter { uid, watched in
            if case .underWay = watched { true } else { due.contains(uid) }
        }
        for uid in due {
            switch state.watched[uid] {
            case .underWay: continue
            case .failed(_, let retryAt) where retryAt > now: next = min(next ?? .max, retryAt - now)
            case .failed, nil:
                state.watched[uid] = .underWay(failures: state.watched[uid]?.failures ?? 0)
                begin.append(uid)
            }
        }
        scheduleNext(in: next, &state)
        return begin
    }

    private func processWatched(uid: UInt32) async {
        do throws(CacheFailure) {
            try await processInTurn(uid: uid)
            state.withLockedValue { $0.watched[uid] = nil }
        } catch {
            // The reason has been logged. After a stop nothing is retried.
            state.withLockedValue { state in
                let failures = (state.watched[uid]?.failures ?? 0) + 1
                let pause = Self.backoff.ceiling(attempt: failures)
                state.watched[uid] = .failed(times: failures, retryAt: services.time.uptime + pause)
                schedule(in: pause, &state)
            }
        }
    }
}

/// A reading that concurrent callers share. A caller that comes during a reading waits for the next one, so that no
/// caller gets a value that was read before its call.
final class SharedReading<Value: Sendable>: Sendable {
    private struct State {
        var begun = 0
        var last: (number: Int, value: Value)?
    }

    private let lock = AsyncFIFOLock()
    private let state = NIOLockedValueBox(State())

    var waiting: Int { lock.waiting }

    /// Returns the result of a call of `read` that began after this call. After an error, the next caller reads again.
    func value<Failure: Error>(_ read: () async throws(Failure) -> Value) async throws(Failure) -> Value {
        let before = state.withLockedValue { $0.begun }
        return try await lock.withLock { () async throws(Failure) -> Value in
            if let last = state.withLockedValue({ $0.last }), last.number > before { return last.value }
            let number = state.withLockedValue { state in
                state.begun += 1
                return state.begun
            }
            let value = try await read()
            state.withLockedValue { $0.last = (number, value) }
            return value
        }
    }

    /// Returns when the current reading and those already waited for have ended.
    func ended() async { await lock.withLock {} }
}
