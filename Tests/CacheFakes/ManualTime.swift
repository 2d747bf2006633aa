import CacheCore
import NIOConcurrencyHelpers

/// Time that only the test advances: a settable wall clock, and timers that fire as it advances.
public final class ManualTime: Timekeeping {
    private struct State {
        /// Milliseconds since 1970; can be set.
        var wall: Int64
        /// Seconds by which the machine's clock was set ahead.
        var jump: Int64 = 0
        /// Milliseconds that have passed; cannot be set.
        var elapsed: Int64 = 0
        var lastNumber = 0
        var timers: [Int: (due: Int64, work: @Sendable () -> Void)] = [:]
    }

    private struct ManualTimer: Timer {
        let number: Int
        let time: ManualTime

        func cancel() {
            time.state.withLockedValue { $0.timers[number] = nil }
        }
    }

    private let state: NIOLockedValueBox<State>

    /// - Parameter now: seconds since 1970.
    public init(now: Int64 = 1_800_000_000) {
        state = NIOLockedValueBox(State(wall: now * 1_000))
    }

    /// Seconds since 1970. Setting it fires no timer.
    public var now: Int64 {
        get { state.withLockedValue { $0.wall / 1_000 } }
        set { state.withLockedValue { $0.wall = newValue * 1_000 } }
    }

    /// The machine's clock. Setting it changes nothing else.
    public var wallClock: Int64 {
        get { state.withLockedValue { $0.wall / 1_000 + $0.jump } }
        set { state.withLockedValue { $0.jump = newValue - $0.wall / 1_000 } }
    }

    public var uptime: Int64 { state.withLockedValue { $0.elapsed } }

    /// The number of pending timers.
    public var timers: Int { state.withLockedValue { $0.timers.count } }

    public func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any Timer {
        state.withLockedValue { state in
            state.lastNumber += 1
            state.timers[state.lastNumber] = (state.elapsed + milliseconds, work)
            return ManualTimer(number: state.lastNumber, time: self)
        }
    }

    /// Cancels all timers, as the end of a process does.
    public func cancelAll() { state.withLockedValue { $0.timers = [:] } }

    /// Advances the time and fires timers as they fall due, including those that fired timers start.
    public func advance(milliseconds: Int64) {
        let end = state.withLockedValue { $0.elapsed + milliseconds }
        while let work = nextDue(until: end) { work() }
        state.withLockedValue { state in
            state.wall += end - state.elapsed
            state.elapsed = end
        }
    }

    public func advance(seconds: Int64) {
        advance(milliseconds: seconds * 1_000)
    }

    private func nextDue(until end: Int64) -> (@Sendable () -> Void)? {
        state.withLockedValue { state in
            let first = state.timers.min { ($0.value.due, $0.key) < ($1.value.due, $1.key) }
            guard let next = first, next.value.due <= end else { return nil }
            state.timers[next.key] = nil
            let passed = max(0, next.value.due - state.elapsed)
            state.wall += passed
            state.elapsed += passed
            return next.value.work
        }
    }
}
