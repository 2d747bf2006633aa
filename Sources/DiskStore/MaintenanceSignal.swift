import NIOConcurrencyHelpers

/// How work is handed to the maintenance thread: any number of wakes before it looks are one.
final class MaintenanceSignal: Sendable {
    private let isAwake = ConditionLock(value: false)
    private let stopped = NIOLockedValueBox(false)
    private let isOver = ConditionLock(value: false)

    var isStopped: Bool { stopped.withLockedValue { $0 } }

    func wake() {
        isAwake.lock()
        isAwake.unlock(withValue: true)
    }

    func stop() {
        stopped.withLockedValue { $0 = true }
        isOver.lock()
        isOver.unlock(withValue: true)
        wake()
    }

    /// Returns after that many seconds, whoever wakes meanwhile, or at the stop.
    func rest(seconds: Double) {
        if isOver.lock(whenValue: true, timeoutSeconds: seconds) { isOver.unlock() }
    }

    /// Returns at a wake, or after that many seconds.
    func wait(seconds: Double) {
        if isAwake.lock(whenValue: true, timeoutSeconds: seconds) { isAwake.unlock(withValue: false) }
    }
}
