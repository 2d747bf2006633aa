import CLinux
import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Background work: the sweep after a start, counting, deleting trash, eviction, restoring the reserve. Runs on its own
/// thread or the caller's.
struct Maintenance: Sendable {
    let logins: LoginFiles
    let images: ImageFiles
    let signal: MaintenanceSignal
    /// Blocks briefly between batches of deletions.
    let pause: @Sendable () -> Void
    let yield: YieldToOthers
    let log: Logger
    private let running = NIOLock()
    private let isSwept = NIOLockedValueBox(false)
    private let thread = NIOLockedValueBox<pthread_t?>(nil)
    /// Seconds until failed work is retried.
    private static let retryPause = 60.0

    var isCounted: Bool { isSwept.withLockedValue { $0 } && images.ledger.withLockedValue { $0.isCounted } }

    /// Does all pending work, until none is possible or the store stops.
    func run() {
        running.withLock {
            step("sweep") { try sweepOnce() }
            step("discarding ended generations") { try images.discardLeftOver() }
            for generation in images.generations where !signal.isStopped {
                step("removing temporary files") { try images.retryFailedRemovals(of: generation) }
                step("counting") { try images.count(generation, until: { signal.isStopped }, yield: yield) }
            }
            step("deleting trash") { try emptyTrash() }
            evict()
            step("restoring the reserve", .debug) { try logins.reserve.restore() }
        }
    }

    private func step(_ what: String, _ level: Logger.Level = .warning, _ body: () throws -> Void) {
        if signal.isStopped { return }
        do {
            try body()
        } catch {
            log.log(
                level: level, "maintenance step failed; will retry", metadata: ["step": "\(what)", "error": "\(error)"])
            signal.retryLater()
        }
    }

    private func sweepOnce() throws {
        if isSwept.withLockedValue({ $0 }) { return }
        logins.sweep(until: { signal.isStopped }, yield: yield)
        try sweepImages()
        guard !signal.isStopped else { return }
        isSwept.withLockedValue { $0 = true }
        // Releases the memory of the names of all generations.
        clinux_trim_heap()
    }

    /// Moves directories without a current key file to the trash, and registers the others.
    private func sweepImages() throws {
        for entry in try images.disk.names(in: images.users) where !signal.isStopped {
            guard let uid = UInt32(name: entry.name),
                let directory = try images.disk.existingDirectory(entry.name, in: images.users)
            else {
                if try !isVacated(entry.name) { try moveToTrash(entry.name, from: images.users) }
                continue
            }
            defer { images.removeDirectoryIfEmpty(of: uid) }
            // List first, then look up keys: a key file is written before its directory, so a new generation is never
            // moved to the trash.
            for found in try images.disk.names(in: directory) where !signal.isStopped {
                yield()
                guard let name = GenerationName(found.name), try isAlive(name, uid: uid) else {
                    try moveToTrash(found.name, from: directory)
                    continue
                }
            }
        }
    }

    /// Whether a logout has removed this uid's directory since it was listed. A login may have created it again.
    private func isVacated(_ name: FileName) throws -> Bool {
        guard UInt32(name: name) != nil else { return false }
        let kind = try images.disk.status(of: name, in: images.users)?.kind
        return kind == nil || kind == .directory
    }

    private func isAlive(_ name: GenerationName, uid: UInt32) throws -> Bool {
        let hashedOwner = HashedOwner(uid: uid, user: name.user)
        return try logins.locks.withLock(for: hashedOwner) {
            guard try logins.keyFile(of: hashedOwner)?.generation == name.generation else { return false }
            _ = images.generation(name.generation, of: hashedOwner, isNew: false)
            return true
        }
    }

    private func moveToTrash(_ name: FileName, from directory: Directory) throws {
        do {
            try images.trash.move(name, from: directory)
        } catch let error as SystemError where error.isMissing {
            // A logout has removed it already.
        }
    }

    private func emptyTrash() throws {
        while !signal.isStopped {
            switch try images.trash.emptySome(budget: Eviction.batch, yield: yield) {
            case .empty: return
            case .stuck:
                log.warning("trash not emptied; will retry")
                signal.retryLater()
                return
            case .more: pause()
            }
        }
    }

    private func evict() {
        for generation in images.generations where !signal.isStopped {
            // Separate steps, so that one unreadable directory does not prevent the quotas of other users.
            step("evicting") {
                while !signal.isStopped, try !images.makeRoom(in: generation, keeping: nil) { pause() }
            }
        }
        var exhausted: Set<UInt64> = []
        while !signal.isStopped, !images.makeRoomInStore(keeping: nil, excluding: &exhausted) { pause() }
        if images.isOverQuota { signal.retryLater() }
    }

    /// - Parameter delay: seconds to wait first.
    func startThread(after delay: Double) throws {
        try thread.withLockedValue { thread in
            guard thread == nil else { return }
            thread = try LinuxSupport.startThread(named: "maintenance") { self.loop(after: delay) }
        }
    }

    private func loop(after delay: Double) {
        // Requests come first. On Linux, this affects the calling thread only (setpriority(2)).
        setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10)
        signal.sleep(seconds: delay)
        while !signal.isStopped {
            run()
            signal.wait(retryPause: Self.retryPause)
        }
    }

    /// Stops the thread, if there is one, and waits for it. Idempotent.
    func stop() {
        signal.stop()
        let thread = thread.withLockedValue { thread in
            defer { thread = nil }
            return thread
        }
        if let thread { pthread_join(thread, nil) }
    }
}

/// Wakes the maintenance thread, which sleeps without a timeout unless a retry is due.
final class MaintenanceSignal: Sendable {
    enum Next: Equatable {
        case run
        case sleep(TimeAmount)
        case sleepUntilWoken
    }

    private struct State {
        var isAwake = false
        var isStopped = false
        /// Whether a step failed.
        var isRetryDue = false
        /// When the thread first saw the failure.
        var retryBegan: NIODeadline?
    }

    private let state = NIOLockedValueBox(State())
    private let wakeup = Semaphore()

    var isStopped: Bool { state.withLockedValue { $0.isStopped } }

    func wake() { change { $0.isAwake = true } }

    /// Makes the thread run again after its retry pause, because a step failed.
    func retryLater() { change { $0.isRetryDue = true } }

    func stop() { change { $0.isStopped = true } }

    private func change(_ body: (inout State) -> Void) {
        let isNew = state.withLockedValue { state in
            let before = (state.isAwake, state.isRetryDue, state.isStopped)
            body(&state)
            return before != (state.isAwake, state.isRetryDue, state.isStopped)
        }
        if isNew { wakeup.signal() }
    }

    /// Sleeps for this time regardless of wakes, or until the stop. Uses a monotonic clock, because the wall clock may
    /// be set back at a start (F14).
    func sleep(seconds: Double) {
        let end = NIODeadline.now() + .milliseconds(Int64(seconds * 1_000))
        while !isStopped {
            let left = end - .now()
            if left <= .zero { break }
            sleep(left)
        }
        // The run that follows covers all wakes so far.
        state.withLockedValue { ($0.isAwake, $0.isRetryDue, $0.retryBegan) = (false, false, nil) }
    }

    /// Sleeps until a wake, the stop, or a due retry.
    func wait(retryPause seconds: Double) {
        while true {
            switch next(at: .now(), retryPause: .milliseconds(Int64(seconds * 1_000))) {
            case .run: return
            case .sleep(let time): sleep(time)
            case .sleepUntilWoken: wakeup.wait()
            }
        }
    }

    /// Decides the next step, and clears the pending work before a run.
    func next(at now: NIODeadline, retryPause: TimeAmount) -> Next {
        state.withLockedValue { state in
            var isDue = state.isAwake || state.isStopped
            if state.isRetryDue, !isDue {
                let began = state.retryBegan ?? now
                state.retryBegan = began
                let left = began + retryPause - now
                if left > .zero { return .sleep(left) }
                isDue = true
            }
            guard isDue else { return .sleepUntilWoken }
            // Cleared before the run, so that a later wake causes another one.
            (state.isAwake, state.isRetryDue, state.retryBegan) = (false, false, nil)
            return .run
        }
    }

    /// Rounded up, because a sleep that ends early would be followed by many short ones.
    private func sleep(_ time: TimeAmount) { wakeup.wait(milliseconds: (time.nanoseconds + 999_999) / 1_000_000) }
}
