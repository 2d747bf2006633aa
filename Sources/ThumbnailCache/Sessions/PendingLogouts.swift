import Logging
import NIOConcurrencyHelpers

/// Where log-out hooks leave word of log-outs that they could not bring to the daemon. Calls block on the disk.
public protocol LogoutMarkers: Sendable {
    /// The markers that are there. Costs a directory listing and a status per marker.
    func pending() throws -> [LogoutMarker]

    /// Removes markers, durably: they are not pending again, also after a restart.
    /// - Throws: when one of them may be pending again.
    func remove(_ honoured: [LogoutMarker]) throws
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

/// Honours the log-outs that came while the daemon was down, stuck or refusing: before it serves anyone, before each
/// log-in of a uid, and once a second.
///
/// Nothing tells a log-in that came after a marker from one that came before it but the order in which they are met. So
/// a log-in waits until the markers of its uid are honoured and removed, and those who honour a uid's markers take
/// turns, each with a listing that began in its turn: what it logs out was logged in before the marker was found. Uids
/// do not wait for each other, nor does the next look for those that the last one found.
public final class PendingLogouts: Sendable {
    private struct State {
        /// Of the uids whose markers are being honoured, or are about to be.
        var turns: [UInt32: Turn] = [:]
        /// The uids whose markers the looks of ``watch()`` found last.
        var watched: [UInt32: Watched] = [:]
        var timer: (any Timer)?
        var isStopped = false
    }

    private struct Watched {
        var isUnderWay = false
        /// In a row.
        var failures = 0
        /// Looks that pass it over from now on.
        var passes = 0
    }

    private struct Turn {
        let lock = AsyncFIFOLock()
        /// Who has the lock, or waits for it.
        var users = 0
    }

    private let markers: any LogoutMarkers
    private let logout: EndingService
    private let services: CacheServices
    private let log: Logger
    private let listing = SharedReading<[UInt32: [LogoutMarker]]>()
    private let state = NIOLockedValueBox(State())

    public init(markers: any LogoutMarkers, logout: EndingService, services: CacheServices, log: Logger) {
        self.markers = markers
        self.logout = logout
        self.services = services
        self.log = log
    }

    /// Whose turn listing and removing markers takes: root leaves them.
    private static var root: UInt32 { 0 }

    /// How many wait for a listing.
    var waiting: Int { listing.waiting }

    /// How many stand in line behind the one that honours a uid's markers.
    func waiting(uid: UInt32) -> Int { state.withLockedValue { $0.turns[uid]?.lock.waiting ?? 0 } }

    /// Honours every marker that there is. Returns when all of it is durable and the markers are removed.
    /// - Throws: the first failure, with the others honoured all the same; what failed stays pending.
    public func honourAll() async throws(CacheFailure) {
        let due = try await list().keys
        let failure = await withTaskGroup(of: CacheFailure?.self) { group in
            for uid in due {
                group.addTask {
                    do throws(CacheFailure) {
                        try await self.honourInTurn(uid: uid)
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
    /// - Throws: what kept the uid's own markers from being honoured, or seen: nobody must log in to it then.
    public func honour(uid: UInt32) async throws(CacheFailure) {
        // As a rule nobody is at it, and there are none. Looked at in this order: who takes a turn later reads no
        // earlier, and so removes nothing that this reading could miss.
        let isNobodyAtIt = state.withLockedValue { $0.turns[uid] == nil }
        if try await list()[uid] == nil, isNobodyAtIt { return }
        try await honourInTurn(uid: uid)
    }

    private func honourInTurn(uid: UInt32) async throws(CacheFailure) {
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
            if let due = try await list()[uid] { try await honour(due, of: uid) }
        }
    }

    /// What is pending, by uid, as of a moment after the call.
    private func list() async throws(CacheFailure) -> [UInt32: [LogoutMarker]] {
        try await listing.value { () async throws(CacheFailure) in
            // What it looks at is closed behind the one who stops it.
            if state.withLockedValue({ $0.isStopped }) { throw .shuttingDown }
            let found = try await services.endings.run(for: Self.root) { [markers] in try markers.pending() }
            return Dictionary(grouping: found, by: \.uid)
        }
    }

    /// With the uid's turn.
    private func honour(_ due: [LogoutMarker], of uid: UInt32) async throws(CacheFailure) {
        do throws(CacheFailure) {
            let receipt = try await logout.logOutAll(uid: uid)
            try await services.endings.run(for: Self.root) { [markers] in try markers.remove(due) }
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

    /// Milliseconds between looks; more after those that failed.
    private static let betweenLooks = Backoff(base: 1_000, most: 30_000)
    /// Looks until a uid that keeps failing is tried again.
    private static let untilRetry = Backoff(base: 1, most: 30)

    /// Looks again and again from here on: a hook that found the daemon stuck has left its marker while it runs.
    public func watch() { look(failures: 0) }

    /// How many uids are being logged out that a look has found.
    var underWay: Int { state.withLockedValue { $0.watched.values.count(where: \.isUnderWay) } }

    /// Ends the looking. Returns when no look is under way any more; none begins after that.
    public func stop() async {
        let (timer, turns) = state.withLockedValue { state in
            state.isStopped = true
            return (state.timer, state.turns.values.map(\.lock))
        }
        timer?.cancel()
        await listing.ended()
        for turn in turns { await turn.withLock {} }
    }

    /// - Parameter failures: of looks, in a row.
    private func look(failures: Int) {
        state.withLockedValue { state in
            guard !state.isStopped else { return }
            state.timer = services.time.after(milliseconds: Self.betweenLooks.ceiling(attempt: failures + 1)) {
                Task(executorPreference: self.services.tasks) { await self.lookNow(failures: failures) }
            }
        }
    }

    /// Lists the markers and has those honoured that are not yet. Waits for the listing alone.
    private func lookNow(failures: Int) async {
        do throws(CacheFailure) {
            let due = try await list().keys
            for uid in state.withLockedValue({ Self.takeUp(Set(due), &$0) }) {
                Task(executorPreference: services.tasks) { await self.honourWatched(uid: uid) }
            }
            look(failures: 0)
        } catch {
            if error == .shuttingDown { return }
            log.error("the pending log-outs cannot be listed", metadata: ["reason": "\(error)"])
            look(failures: failures + 1)
        }
    }

    /// Those whose turn it is: not those under way, nor those that failed a moment ago.
    private static func takeUp(_ due: Set<UInt32>, _ state: inout State) -> [UInt32] {
        state.watched = state.watched.filter { $0.value.isUnderWay || due.contains($0.key) }
        return due.filter { uid in
            var watched = state.watched[uid] ?? Watched()
            guard !watched.isUnderWay else { return false }
            watched.isUnderWay = watched.passes == 0
            watched.passes = max(0, watched.passes - 1)
            state.watched[uid] = watched
            return watched.isUnderWay
        }
    }

    private func honourWatched(uid: UInt32) async {
        do throws(CacheFailure) {
            try await honourInTurn(uid: uid)
            state.withLockedValue { $0.watched[uid] = nil }
        } catch {
            // Why, has been logged. Behind a stop nobody looks again.
            state.withLockedValue { state in
                let failures = (state.watched[uid]?.failures ?? 0) + 1
                let passes = Int(Self.untilRetry.ceiling(attempt: failures)) - 1
                state.watched[uid] = Watched(failures: failures, passes: passes)
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
