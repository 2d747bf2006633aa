import CLinux
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

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
    /// Seconds after which the thread looks again without having been woken: what could not be done may be by then.
    private static let period = 60.0

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
            log.attempt("no room for the reserve", .debug) { try logins.reserve.restore() }
        }
    }

    private func step(_ what: String, _ body: () throws -> Void) {
        if signal.isStopped { return }
        log.attempt("\(what) failed; it is tried again later") { try body() }
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
        let sealedOwner = SealedOwner(uid: uid, user: name.user)
        return try logins.locks.withLock(for: sealedOwner) {
            guard try logins.keyFile(of: sealedOwner)?.generation == name.generation else { return false }
            _ = images.generation(name.generation, of: sealedOwner, isNew: false)
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
            signal.wait(seconds: Self.period)
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
final class MaintenanceSignal: Sendable {
    private let state = NIOLockedValueBox((isAwake: false, isStopped: false))
    private let wakeup = Semaphore()

    var isStopped: Bool { state.withLockedValue { $0.isStopped } }

    func wake() {
        let wasAwake = state.withLockedValue { state in
            defer { state.isAwake = true }
            return state.isAwake
        }
        if !wasAwake { wakeup.signal() }
    }

    func stop() {
        state.withLockedValue { $0.isStopped = true }
        wake()
    }

    /// Returns after that many seconds, whoever wakes meanwhile, or soon after the stop. By the machine's running time:
    /// at a start the wall clock may be set back by hours (F14).
    func rest(seconds: Double) {
        let end = NIODeadline.now() + .milliseconds(Int64(seconds * 1_000))
        while !isStopped && .now() < end { usleep(20_000) }
    }

    /// Returns at a wake, or after that many seconds of the machine's running time.
    func wait(seconds: Double) {
        wakeup.wait(milliseconds: Int64(seconds * 1_000))
        // Before anything is looked at: a wake from here on is for the next time.
        state.withLockedValue { $0.isAwake = false }
    }
}
