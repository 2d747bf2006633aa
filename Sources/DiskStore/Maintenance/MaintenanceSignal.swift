import Glibc
import NIOConcurrencyHelpers
import NIOCore

/// How work is handed to the maintenance thread: any number of wakes before it looks are one.
final class MaintenanceSignal: Sendable {
    private let isAwake = ConditionLock(value: false)
    private let stopped = NIOLockedValueBox(false)

    var isStopped: Bool { stopped.withLockedValue { $0 } }

    func wake() {
        isAwake.lock()
        isAwake.unlock(withValue: true)
    }

    func stop() {
        stopped.withLockedValue { $0 = true }
        wake()
    }

    /// Returns after that many seconds, whoever wakes meanwhile, or soon after the stop. By the machine's running time: at a start the
    /// wall clock, by which a condition waits, may be set back by hours (F14).
    func rest(seconds: Double) {
        let end = NIODeadline.now() + .milliseconds(Int64(seconds * 1_000))
        while !isStopped && .now() < end { usleep(20_000) }
    }

    /// Returns at a wake, or after that many seconds.
    func wait(seconds: Double) {
        if isAwake.lock(whenValue: true, timeoutSeconds: seconds) { isAwake.unlock(withValue: false) }
    }
}
