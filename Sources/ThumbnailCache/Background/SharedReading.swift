import NIOConcurrencyHelpers

/// Reads something for all who ask for it: who come while it is read share the next reading.
///
/// Nobody is given what was read before they asked.
final class SharedReading<Value: Sendable>: Sendable {
    private struct State {
        /// How many readings have begun.
        var begun = 0
        /// The last that succeeded.
        var last: (number: Int, value: Value)?
    }

    private let lock = AsyncFIFOLock()
    private let state = NIOLockedValueBox(State())

    /// How many stand in line behind the one that reads.
    var waiting: Int { lock.waiting }

    /// What `read` gave, in a call that began after this one.
    /// - Throws: what `read` throws; who waits meanwhile reads again.
    func value<Failure: Error>(_ read: () async throws(Failure) -> Value) async throws(Failure) -> Value {
        let before = state.withLockedValue { $0.begun }
        return try await lock.withLock { () async throws(Failure) -> Value in
            if let last = state.withLockedValue({ $0.last }), last.number > before { return last.value }
            let number = state.withLockedValue { state in
                state.begun += 1
                return state.begun
            }
            let value = try await read()
            state.withLockedValue { $0.last = (number, value) }
            return value
        }
    }

    /// Returns when the reading under way, and those that were waited for, are over.
    func ended() async {
        await lock.withLock {}
    }
}
