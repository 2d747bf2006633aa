import Logging
import NIOConcurrencyHelpers

/// Where log-out hooks leave word of log-outs that they could not bring to the daemon. Calls block on the disk.
public protocol LogoutMarkers: Sendable {
    /// The markers that are there. Costs a directory listing and a status per marker.
    func pending() throws -> [LogoutMarker]

    /// Removes markers, durably: they are not pending again, also after a restart.
    /// - Throws: when one of them may be pending again.
    func remove(_ processed: [LogoutMarker]) throws
}

/// Reports new markers, so that an idle daemon does not have to list the directory at intervals.
public protocol LogoutMarkerWatch: Sendable {
    /// Starts the watch, or renews it for the directory that is there now. May block on the disk.
    /// - Parameter changed: called on any thread after each change of the directory; must not block.
    /// - Returns: whether every marker made after this call is reported. If not, the caller has to list at intervals.
    func renew(_ changed: @escaping @Sendable () -> Void) -> Bool

    /// Ends the watch. ``renew(_:)`` does nothing afterwards.
    func end()
}

/// Word that everything of a uid is to be logged out.
public struct LogoutMarker: Hashable, Sendable {
    public let uid: UInt32
    /// Never used for another marker.
    public let name: String

    public init(uid: UInt32, name: String) {
        self.uid = uid
        self.name = name
    }
}

/// Processes the log-outs that came while the daemon was down, stuck or refusing: before it serves anyone, before each
/// log-in of a uid, and within a second after it was left.
///
/// Nothing tells a log-in that came after a marker from one that came before it but the order in which they are met. So
/// a log-in waits until the markers of its uid are processed and removed, and those who process a uid's markers take
/// turns, each with a listing that began in its turn: what it logs out was logged in before the marker was found. Uids
/// do not wait for each other, nor does the next look for those that the last one found.
public final class PendingLogouts: Sendable {
    private struct State {
        /// Of the uids whose markers are being processed, or are about to be.
        var turns: [UInt32: Turn] = [:]
        /// The uids whose markers a listing of ``watch(by:)`` found, until their log-out is done.
        var watched: [UInt32: Watched] = [:]
        var watch: (any LogoutMarkerWatch)?
        var listing = Listing.none
        /// Consecutive listings that failed.
        var failures = 0
        var isStopped = false
    }

    private enum Watched {
        case underWay(failures: Int)
        /// The log-out failed so many times in a row. It is retried at this uptime.
        case failed(times: Int, retryAt: Int64)

        var failures: Int {
            switch self {
            case .underWay(let failures), .failed(let failures, _): failures
            }
        }
    }

    /// The next listing of ``watch(by:)``.
    private enum Listing {
        /// Nothing is due: a change of the directory causes the next one.
        case none
        case due(at: Int64, any Timer)
        /// `next`: the uptime at which another one is due because of what happened meanwhile.
        case running(next: Int64?)
    }

    private struct Turn {
        let lock = AsyncFIFOLock()
        /// Who has the lock, or waits for it.
        var users = 0
    }

    private let markers: any LogoutMarkers
    private let logout: InvalidationService
    private let services: CacheServices
    private let log: Logger
    private let listing = SharedReading<[UInt32: [LogoutMarker]]>()
    private let state = NIOLockedValueBox(State())

    public init(markers: any LogoutMarkers, logout: InvalidationService, services: CacheServices, log: Logger) {
        self.markers = markers
        self.logout = logout
        self.services = services
        self.log = log
    }

    /// Whose turn listing and removing markers takes: root leaves them.
    private static var root: UInt32 { 0 }

    /// How many wait for a listing.
    var waiting: Int { listing.waiting }

    /// How many stand in line behind the one that processes a uid's markers.
    func waiting(uid: UInt32) -> Int { state.withLockedValue { $0.turns[uid]?.lock.waiting ?? 0 } }

    /// Processes every marker that there is. Returns when all of it is durable and the markers are removed.
    /// - Throws: the first failure, with the others processed all the same; what failed stays pending.
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

    /// The same for one uid, before somebody logs in to it. Costs a listing of the directory, shared by all who wait.
    /// - Throws: what kept the uid's own markers from being processed, or seen: nobody must log in to it then.
    public func process(uid: UInt32) async throws(CacheFailure) {
        // As a rule nobody is at it, and there are none. Looked at in this order: who takes a turn later reads no
        // earlier, and so removes nothing that this reading could miss.
        let isNobodyAtIt = state.withLockedValue { $0.turns[uid] == nil }
        if try await list()[uid] == nil, isNobodyAtIt { return }
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

    /// What is pending, by uid, as of a moment after the call.
    private func list() async throws(CacheFailure) -> [UInt32: [LogoutMarker]] {
        try await listing.value { () async throws(CacheFailure) in
            // What it looks at is closed behind the one who stops it.
            if state.withLockedValue({ $0.isStopped }) { throw .shuttingDown }
            let found = try await services.invalidations.run(for: Self.root) { [markers] in try markers.pending() }
            return Dictionary(grouping: found, by: \.uid)
        }
    }

    /// With the uid's turn.
    private func process(_ due: [LogoutMarker], of uid: UInt32) async throws(CacheFailure) {
        do throws(CacheFailure) {
            let receipt = try await logout.logOutAll(uid: uid)
            try await services.invalidations.run(for: Self.root) { [markers] in try markers.remove(due) }
            // Without users it is the marker of a hook that is just being answered, as a rule.
            log.log(
                level: receipt.users > 0 ? .notice : .debug, "a log-out that was pending is done",
                metadata: ["uid": "\(uid)", "users": "\(receipt.users)"])
        } catch {
            log.error(
                "a log-out that is pending could not be done; it is tried again",
                metadata: ["uid": "\(uid)", "reason": "\(error)"])
            throw error
        }
    }

    // MARK: While the daemon runs

    /// Milliseconds from a change of the directory to the listing. A hook that the daemon answers in this time has
    /// removed its marker by then, and a burst of changes causes one listing a second.
    private static let delay: Int64 = 1_000
    /// Milliseconds between listings that fail, and between attempts to log out a uid.
    private static let backoff = Backoff(base: delay, most: 30_000)

    /// Processes the markers left while the daemon runs: a hook that found the daemon stuck has left one.
    ///
    /// No timer is armed while the directory is watched and no log-out is pending.
    public func watch(by watch: any LogoutMarkerWatch) {
        state.withLockedValue { state in
            state.watch = watch
            // Starts the watch, and finds what was left before that.
            schedule(in: Self.delay, &state)
        }
    }

    /// How many uids found by a listing are being logged out.
    var underWay: Int {
        state.withLockedValue { state in
            state.watched.values.count {
                if case .underWay = $0 { true } else { false }
            }
        }
    }

    /// Whether a listing of ``watch(by:)`` is under way.
    var isListing: Bool {
        state.withLockedValue { state in
            if case .running = state.listing { true } else { false }
        }
    }

    /// Ends the watch. Returns when no listing and no log-out is under way any more; none begins after that.
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

    /// Has the markers listed in so many milliseconds, unless that is due sooner. The lock is held.
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

    /// Lists the markers and starts the log-outs that are due. Waits for the listing alone.
    private func listNow() async {
        let watch = state.withLockedValue { state -> (any LogoutMarkerWatch)? in
            // A timer that was replaced may have fired all the same.
            guard case .due(_, let timer) = state.listing, !state.isStopped else { return nil }
            timer.cancel()
            state.listing = .running(next: nil)
            return state.watch
        }
        guard let watch else { return }
        do throws(CacheFailure) {
            // Renewed before the listing: a marker made between the two would be missed otherwise.
            let isWatched = try await services.invalidations.run(for: Self.root) { watch.renew { self.changed() } }
            let due = try await list().keys
            let uids = state.withLockedValue { takeUp(Set(due), isWatched: isWatched, &$0) }
            for uid in uids { Task(executorPreference: services.tasks) { await self.processWatched(uid: uid) } }
        } catch {
            if error == .shuttingDown { return }
            log.error("the pending log-outs cannot be listed", metadata: ["reason": "\(error)"])
            state.withLockedValue { state in
                state.failures += 1
                scheduleNext(in: Self.backoff.ceiling(attempt: state.failures), &state)
            }
        }
    }

    /// Ends a listing, and arms a timer only if something is due.
    private func scheduleNext(in delay: Int64?, _ state: inout State) {
        guard case .running(let next) = state.listing else { return }
        state.listing = .none
        if let delay { schedule(in: delay, &state) }
        if let next { schedule(in: next - services.time.uptime, &state) }
    }

    /// The uids to log out now: not those under way, nor those that failed a moment ago.
    private func takeUp(_ due: Set<UInt32>, isWatched: Bool, _ state: inout State) -> [UInt32] {
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

/// Reads something for all who ask for it: who come while it is read share the next reading.
///
/// Nobody is given what was read before they asked.
final class SharedReading<Value: Sendable>: Sendable {
    private struct State {
        /// How many readings have begun.
        var begun = 0
        /// The last that succeeded.
        var last: (number: Int, value: Value)?
    }

    private let lock = AsyncFIFOLock()
    private let state = NIOLockedValueBox(State())

    /// How many stand in line behind the one that reads.
    var waiting: Int { lock.waiting }

    /// What `read` gave, in a call that began after this one.
    /// - Throws: what `read` throws; who waits meanwhile reads again.
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

    /// Returns when the reading under way, and those that were waited for, are over.
    func ended() async { await lock.withLock {} }
}
