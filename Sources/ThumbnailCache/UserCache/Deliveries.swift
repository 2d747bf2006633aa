import NIOConcurrencyHelpers

/// Answers that were decided under a cache's lock and are on their way to whoever asked, outside it.
///
/// A purge or log-out that only ended what still waits could overtake such an answer: the image would arrive after the
/// receipt (I3). So an ending waits for those that were decided before it. They never block, so it never waits long; those
/// decided later are counted by another object and hold up nobody.
final class Deliveries: Sendable {
    private struct State {
        var underWay = 0
        var isAwaited = false
    }

    private let state = NIOLockedValueBox(State())
    private let isDone = ConditionLock<Bool>(value: true)

    /// Whether somebody waits for them, or has waited.
    var isAwaited: Bool { state.withLockedValue { $0.isAwaited } }

    /// With the cache's lock held, under which the answers are decided.
    func begin() {
        change(by: 1)
    }

    /// When whoever asked has the answers.
    func end() {
        change(by: -1)
    }

    /// Blocks until all that began have ended. Nothing may begin any more.
    func drain() {
        state.withLockedValue { $0.isAwaited = true }
        isDone.lock(whenValue: true)
        isDone.unlock()
    }

    private func change(by step: Int) {
        isDone.lock()
        let isDone = state.withLockedValue { state in
            state.underWay += step
            return state.underWay == 0
        }
        self.isDone.unlock(withValue: isDone)
    }
}
