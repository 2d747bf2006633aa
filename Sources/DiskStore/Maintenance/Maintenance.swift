import CLinux
import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// What happens behind everybody's back: the sweep after a start, counting, deleting trash, evicting what writers left
/// over, making the reserve anew. On a thread of its own, or on the caller's.
struct Maintenance: Sendable {
    let logins: LoginFiles
    let images: ImageFiles
    let signal: MaintenanceSignal
    /// Waits a little, between batches of deletions.
    let pause: @Sendable () -> Void
    let yield: YieldToOthers
    let log: Logger
    private let running = NIOLock()
    private let isSwept = NIOLockedValueBox(false)
    private let thread = NIOLockedValueBox<pthread_t?>(nil)
    /// Seconds until the thread retries what could not be done.
    private static let retryPause = 60.0

    /// Whether all that was there at the start is counted.
    var isCounted: Bool { isSwept.withLockedValue { $0 } && images.ledger.withLockedValue { $0.isCounted } }

    /// Everything that is due, until nothing more can be done or it is stopped.
    func run() {
        running.withLock {
            step("the sweep") { try sweepOnce() }
            step("discarding dead generations") { try images.discardLeftOver() }
            for generation in images.generations where !signal.isStopped {
                step("removing temporary files") { try images.removeLeftOver(of: generation) }
                step("counting") { try images.count(generation, until: { signal.isStopped }, yield: yield) }
            }
            step("deleting trash") { try emptyTrash() }
            evict()
            step("making the reserve", .debug) { try logins.reserve.restore() }
        }
    }

    private func step(_ what: String, _ level: Logger.Level = .warning, _ body: () throws -> Void) {
        if signal.isStopped { return }
        do {
            try body()
        } catch {
            log.log(level: level, "\(what) failed; it is tried again later", metadata: ["error": "\(error)"])
            signal.retryLater()
        }
    }

    private func sweepOnce() throws {
        if isSwept.withLockedValue({ $0 }) { return }
        logins.sweep(until: { signal.isStopped }, yield: yield)
        try sweepImages()
        guard !signal.isStopped else { return }
        isSwept.withLockedValue { $0 = true }
        // The names of all generations were in memory at once, and never are again.
        clinux_trim_heap()
    }

    /// Gives to the trash whatever no key file names, and makes known the rest.
    private func sweepImages() throws {
        for entry in try images.disk.names(in: images.users) where !signal.isStopped {
            guard let uid = UInt32(name: entry.name),
                let directory = try images.disk.existingDirectory(entry.name, in: images.users)
            else {
                if try !isVacated(entry.name) { try takeAway(entry.name, from: images.users) }
                continue
            }
            defer { images.removeDirectoryIfEmpty(of: uid) }
            // Listed first, each looked up second: a generation's key file is there before its directory, so that one
            // made meanwhile can never be taken for dead.
            for found in try images.disk.names(in: directory) where !signal.isStopped {
                yield()
                guard let name = GenerationName(found.name), try isAlive(name, uid: uid) else {
                    try takeAway(found.name, from: directory)
                    continue
                }
            }
        }
    }

    /// Whether it is a uid's directory that a log-out took away since it was listed; maybe a log-in has made it anew.
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

    private func takeAway(_ name: FileName, from directory: Directory) throws {
        do {
            try images.trash.take(name, from: directory)
        } catch let error as SystemError where error.isMissing {
            // A log-out has been quicker.
        }
    }

    private func emptyTrash() throws {
        while !signal.isStopped {
            switch try images.trash.emptySome(budget: Eviction.batch, yield: yield) {
            case .empty: return
            case .stuck:
                log.warning("something in the trash cannot be deleted; it is tried again later")
                signal.retryLater()
                return
            case .more: pause()
            }
        }
    }

    private func evict() {
        for generation in images.generations where !signal.isStopped {
            // Each by itself: one whose directory cannot be read keeps no other from its quota.
            step("evicting") {
                while !signal.isStopped, try !images.makeRoom(in: generation, keeping: nil) { pause() }
            }
        }
        var nothingToGive: Set<UInt64> = []
        while !signal.isStopped, !images.makeRoomInStore(keeping: nil, passingOver: &nothingToGive) { pause() }
        if images.isOverQuota { signal.retryLater() }
    }

    // MARK: The thread

    /// - Parameter rest: seconds until it does anything.
    func startThread(after rest: Double) throws {
        try thread.withLockedValue { thread in
            guard thread == nil else { return }
            thread = try LinuxSupport.startThread(named: "maintenance") { self.loop(after: rest) }
        }
    }

    private func loop(after rest: Double) {
        // Nobody waits for it: those who serve go first. On Linux this is the calling thread alone, setpriority(2).
        setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10)
        signal.rest(seconds: rest)
        while !signal.isStopped {
            run()
            signal.wait(retryPause: Self.retryPause)
        }
    }

    /// Stops and waits for the thread, if there is one. Idempotent.
    func stop() {
        signal.stop()
        let thread = thread.withLockedValue { thread in
            defer { thread = nil }
            return thread
        }
        if let thread { pthread_join(thread, nil) }
    }
}

/// How work is handed to the maintenance thread: any number of wakes before it looks are one.
///
/// Without work the thread sleeps until it is woken. A timeout is set only while something is to be retried.
final class MaintenanceSignal: Sendable {
    /// What the thread does next.
    enum Next: Equatable {
        case run
        /// Sleeps for so long at most.
        case sleep(TimeAmount)
        /// Sleeps until it is woken.
        case sleepUntilWoken
    }

    private struct State {
        var isAwake = false
        var isStopped = false
        /// Something could not be done.
        var isRetryDue = false
        /// When the thread first saw that.
        var retryBegan: NIODeadline?
    }

    private let state = NIOLockedValueBox(State())
    private let wakeup = Semaphore()

    var isStopped: Bool { state.withLockedValue { $0.isStopped } }

    func wake() { change { $0.isAwake = true } }

    /// Has the thread run again after its retry pause: something could not be done, and may be by then.
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

    /// Returns after that many seconds, whoever wakes meanwhile, or at the stop. By the machine's running time: at a
    /// start the wall clock may be set back by hours (F14).
    func rest(seconds: Double) {
        let end = NIODeadline.now() + .milliseconds(Int64(seconds * 1_000))
        while !isStopped {
            let left = end - .now()
            if left <= .zero { break }
            sleep(left)
        }
        // The run that follows does what there is by now.
        state.withLockedValue { ($0.isAwake, $0.isRetryDue, $0.retryBegan) = (false, false, nil) }
    }

    /// Returns at a wake, at the stop, or when a retry is due.
    func wait(retryPause seconds: Double) {
        while true {
            switch next(at: .now(), retryPause: .milliseconds(Int64(seconds * 1_000))) {
            case .run: return
            case .sleep(let time): sleep(time)
            case .sleepUntilWoken: wakeup.wait()
            }
        }
    }

    /// Decides what the thread does, and takes the work if it runs.
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
            // Before anything is looked at: a wake from here on is for the next time.
            (state.isAwake, state.isRetryDue, state.retryBegan) = (false, false, nil)
            return .run
        }
    }

    /// Rounded up: a sleep that ends early is followed by many short ones.
    private func sleep(_ time: TimeAmount) { wakeup.wait(milliseconds: (time.nanoseconds + 999_999) / 1_000_000) }
}
