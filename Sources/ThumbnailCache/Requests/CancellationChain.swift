import NIOConcurrencyHelpers

/// A download that takes several steps, one after another, as one thing that can be stopped: the wait for a token, the request,
/// and where the origin refuses the token, both again.
final class CancellationChain: DownloadHandle {
    private struct State {
        var isCancelled = false
        var number = 0
        var step: (any DownloadHandle)?
    }

    private let state = NIOLockedValueBox(State())

    /// Goes on with a step: it is what ``cancel()`` stops from now on, and what is stopped here if that came first.
    /// - Parameter number: a step that was overtaken by a later one, on another thread, changes nothing.
    func follow(_ step: any DownloadHandle, as number: Int) {
        let isLate = state.withLockedValue { state in
            if state.isCancelled { return true }
            if number > state.number { (state.number, state.step) = (number, step) }
            return false
        }
        if isLate { step.cancel() }
    }

    func cancel() {
        let step = state.withLockedValue { state in
            state.isCancelled = true
            return state.step.take()
        }
        step?.cancel()
    }
}
