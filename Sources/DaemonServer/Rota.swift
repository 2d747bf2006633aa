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

    init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    /// How long the event loop has to find out that nothing else is due.
    private static var pause: TimeAmount { .microseconds(100) }

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

    private func round() {
        let due = state.withLockedValue { state in
            defer { state.waiting = [] }
            return state.waiting
        }
        for go in due { go() }
        let isOver = state.withLockedValue { state in
            state.isTimerSet = !state.waiting.isEmpty
            return state.waiting.isEmpty
        }
        if !isOver { setTimer() }
    }
}
