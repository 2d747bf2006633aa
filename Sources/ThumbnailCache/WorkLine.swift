import DequeModule
import NIOConcurrencyHelpers

/// Pieces of work that are done one after another, in the order they came, by one thread of a pool at most.
///
/// What comes while that thread works costs its sender no more than a lock: a thread is woken only where none works, which takes
/// longer than many a piece does.
final class WorkLine: Sendable {
    typealias Piece = @Sendable () -> Void

    private struct State {
        var waiting: Deque<Piece> = []
        var isWorking = false
    }

    private let pool: any BlockingPool
    private let state = NIOLockedValueBox(State())

    init(pool: any BlockingPool) {
        self.pool = pool
    }

    func add(_ piece: @escaping Piece) {
        let begins = state.withLockedValue { state in
            state.waiting.append(piece)
            defer { state.isWorking = true }
            return !state.isWorking
        }
        if begins { pool.submit { self.work() } }
    }

    private func work() {
        while let piece = next() { piece() }
    }

    private func next() -> Piece? {
        state.withLockedValue { state in
            state.isWorking = !state.waiting.isEmpty
            return state.waiting.popFirst()
        }
    }
}
