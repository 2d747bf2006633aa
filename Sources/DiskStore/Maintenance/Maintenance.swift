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

    /// - Parameters:
    ///   - delay: seconds to wait first.
    ///   - whenCounted: called once, by the thread, when all images have been counted.
    func startThread(after delay: Double, whenCounted: @escaping @Sendable () -> Void) throws {
        try thread.withLockedValue { thread in
            guard thread == nil else { return }
            thread = try LinuxSupport.startThread(named: "maintenance") { self.loop(after: delay, whenCounted) }
        }
    }

    private func loop(after delay: Double, _ whenCounted: @Sendable () -> Void) {
        // Requests come first. On Linux, this affects the calling thread only (setpriority(2)).
        setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10)
        signal.sleep(seconds: delay)
        var wasCounted = false
        while !signal.isStopped {
            run()
            if !wasCounted, isCounted {
                wasCounted = true
                whenCounted()
            }
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
