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

/// Honours the log-outs that came while the daemon was down, stuck or refusing: before it serves anyone, before each log-in
/// of a uid, and once a second.
///
/// Nothing tells a log-in that came after a marker from one that came before it but the order in which they are met. So
/// a log-in waits until the markers of its uid are honoured and removed, and looks take turns: what a look logs
/// out was logged in before the marker was found.
public final class PendingLogouts: Sendable {
    private struct State {
        /// How many looks have begun.
        var looks = 0
        /// The last that came to its end, and what it could not do.
        var last: (number: Int, failures: [UInt32: CacheFailure])?
        var timer: (any Timer)?
        var isStopped = false
    }

    private let markers: any LogoutMarkers
    private let logout: LogoutService
    private let services: CacheServices
    private let log: Logger
    private let turnstile = Turnstile()
    private let state = NIOLockedValueBox(State())

    public init(markers: any LogoutMarkers, logout: LogoutService, services: CacheServices, log: Logger) {
        self.markers = markers
        self.logout = logout
        self.services = services
        self.log = log
    }

    /// Whose turn looking for markers takes: root leaves them.
    private static var root: UInt32 { 0 }

    /// How many stand in line behind the one that looks.
    var waiting: Int { turnstile.waiting }

    /// Honours every marker that there is. Returns when all of it is durable and the markers are removed.
    /// - Throws: the first failure, with the others honoured all the same; what failed stays pending.
    public func honourAll() async throws(CacheFailure) {
        let failures = try await look()
        if let first = failures.min(by: { $0.key < $1.key }) { throw first.value }
    }

    /// The same, for one who wants to log in to a uid. Costs a listing of the directory, which all share who come meanwhile.
    /// - Throws: what kept the uid's own markers from being honoured, or from being seen: it must not log in then.
    public func honour(uid: UInt32) async throws(CacheFailure) {
        if let failure = try await look()[uid] { throw failure }
    }

    /// Honours what was left before this is called.
    /// - Returns: what could not be done, by uid.
    private func look() async throws(CacheFailure) -> [UInt32: CacheFailure] {
        let before = state.withLockedValue { $0.looks }
        do {
            return try await turnstile.withTurn {
                let (isStopped, last) = state.withLockedValue { ($0.isStopped, $0.last) }
                // What it looks at is closed behind the one who stops it.
                if isStopped { throw CacheFailure.shuttingDown }
                // One that began since has seen all that this one would.
                if let last, last.number > before { return last.failures }
                let number = state.withLockedValue { state in
                    state.looks += 1
                    return state.looks
                }
                let markers = self.markers
                let due = try await services.endings.run(for: Self.root) { try markers.pending() }
                let failures = await honour(due)
                state.withLockedValue { $0.last = (number, failures) }
                return failures
            }
        } catch {
            throw CacheFailure(error)
        }
    }

    /// One uid's trouble does not keep the others' caches alive.
    private func honour(_ due: [LogoutMarker]) async -> [UInt32: CacheFailure] {
        if due.isEmpty { return [:] }
        var done: [LogoutMarker] = []
        var failures: [UInt32: CacheFailure] = [:]
        for (uid, markers) in Dictionary(grouping: due, by: \.uid).sorted(by: { $0.key < $1.key }) {
            do throws(CacheFailure) {
                let receipt = try await logout.logOutAll(uid: uid)
                done += markers
                // Without users it is the marker of a hook that is just being answered, as a rule.
                log.log(
                    level: receipt.users > 0 ? .notice : .debug, "a log-out that was pending is done",
                    metadata: ["uid": "\(uid)", "users": "\(receipt.users)"])
            } catch {
                failures[uid] = error
                log.error(
                    "a log-out that is pending could not be done; it is tried again",
                    metadata: ["uid": "\(uid)", "reason": "\(error)"])
            }
        }
        do {
            let (markers, honoured) = (self.markers, done)
            if !honoured.isEmpty { try await services.endings.run(for: Self.root) { try markers.remove(honoured) } }
        } catch {
            for marker in done { failures[marker.uid] = CacheFailure(error) }
        }
        return failures
    }

    // MARK: While the daemon runs

    /// Milliseconds between looks; doubled after each look that failed, up to the last.
    private static var pause: Int64 { 1_000 }
    private static var longestPause: Int64 { 30_000 }

    /// Looks again and again from here on: a hook that found the daemon stuck has left its marker while it runs.
    public func watch() {
        look(after: Self.pause)
    }

    /// Ends the looking. Returns when no look is under way any more; none begins after that.
    public func stop() async {
        let timer = state.withLockedValue { state in
            state.isStopped = true
            return state.timer
        }
        timer?.cancel()
        await turnstile.withTurn {}
    }

    private func look(after pause: Int64) {
        state.withLockedValue { state in
            guard !state.isStopped else { return }
            state.timer = services.time.after(milliseconds: pause) {
                Task(executorPreference: self.services.tasks) { await self.look(pause: pause) }
            }
        }
    }

    private func look(pause: Int64) async {
        guard !state.withLockedValue({ $0.isStopped }) else { return }
        do throws(CacheFailure) {
            try await honourAll()
            look(after: Self.pause)
        } catch {
            if error == .shuttingDown { return }
            log.error("the pending log-outs are not all done", metadata: ["reason": "\(error)"])
            look(after: min(2 * pause, Self.longestPause))
        }
    }
}
