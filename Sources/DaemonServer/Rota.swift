import NIOConcurrencyHelpers
import NIOCore

/// Takes the connections of one event loop that have much to do round by round, so that the others are served in between.
///
/// An event loop runs what is due until nothing is, and looks at its sockets only then. Were each connection to come back by a
/// timer of its own, one would fall due while another is at work, and the sockets would never be looked at. So there is one
/// timer for all of them, set when the last has had its go.
final class Rota: Sendable {
    private struct State {
        var waiting: [@Sendable () -> Void] = []
        var isTimerSet = false
    }

    private let eventLoop: any EventLoop
    private let state = NIOLockedValueBox(State())

    private let now: @Sendable () -> NIODeadline

    init(eventLoop: any EventLoop, now: @escaping @Sendable () -> NIODeadline = { .now() }) {
        self.eventLoop = eventLoop
        self.now = now
    }

    /// How long the event loop has to find out that nothing else is due.
    private static var pause: TimeAmount { .microseconds(100) }

    /// After which the sockets are looked at, however many have yet to have their go.
    private static var longestRound: TimeAmount { .milliseconds(5) }

    /// Runs `go` on the event loop in the next round.
    func nextRound(_ go: @escaping @Sendable () -> Void) {
        let isFirst = state.withLockedValue { state in
            state.waiting.append(go)
            defer { state.isTimerSet = true }
            return !state.isTimerSet
        }
        if isFirst { setTimer() }
    }

    private func setTimer() {
        eventLoop.scheduleTask(in: Self.pause) { self.round() }
    }

    /// A round that takes long is broken off, for the sockets to be looked at; the next one begins where it ended.
    private func round() {
        let due = state.withLockedValue { state in
            defer { state.waiting = [] }
            return state.waiting
        }
        let end = now() + Self.longestRound
        var gone = 0
        while gone < due.count, gone == 0 || now() < end {
            due[gone]()
            gone += 1
        }
        let isOver = state.withLockedValue { state in
            state.waiting.insert(contentsOf: due[gone...], at: 0)
            state.isTimerSet = !state.waiting.isEmpty
            return state.waiting.isEmpty
        }
        if !isOver { setTimer() }
    }
}
