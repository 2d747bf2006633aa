import NIOConcurrencyHelpers
import NIOCore

/// Events that the event loop appends and one task reads. If the buffer is full, a gap replaces all events, since it
/// tells the reader to discard everything.
final class EventBuffer: Sendable {
    private struct State {
        var events = CircularBuffer<ThumbcacheEvent>()
        var isSubscribed = false
        var reader: OneShot<Void>?
    }

    private let limit: Int
    private let state = NIOLockedValueBox(State())

    init(limit: Int) { self.limit = max(2, limit) }

    func append(_ event: ThumbcacheEvent) {
        let reader: OneShot<Void>? = state.withLockedValue { state in
            switch event {
            case .subscribed: state.isSubscribed = true
            case .gap: state.isSubscribed = false
            default: break
            }
            if event == .gap || state.events.count >= limit {
                state.events.removeAll(keepingCapacity: false)
                state.events.append(.gap)
                if state.isSubscribed { state.events.append(.subscribed) }
            } else {
                state.events.append(event)
            }
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resolve(.success(()))
    }

    func pop() -> ThumbcacheEvent? { state.withLockedValue { $0.events.popFirst() } }

    func wait() async throws(ThumbcacheError) {
        let reader = OneShot<Void>()
        state.withLockedValue { state in
            if state.events.isEmpty {
                state.reader = reader
            } else {
                reader.resolve(.success(()))
            }
        }
        try await reader.wait().get()
    }
}
