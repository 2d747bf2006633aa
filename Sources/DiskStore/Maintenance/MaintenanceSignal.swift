import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

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
