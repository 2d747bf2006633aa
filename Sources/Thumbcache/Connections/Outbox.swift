import NIOConcurrencyHelpers

/// A request to send, with its exchange.
struct OutgoingRequest: Sendable {
    let request: ThumbcacheRequest
    /// nil for SUBSCRIBE, which is confirmed by push messages.
    let exchange: Exchange?
}

/// Requests that wait for the event loop. Concurrent requests wake the loop once and are sent in one write.
final class Outbox: Sendable {
    private let requests = NIOLockedValueBox<[OutgoingRequest]>([])

    /// Returns true if the outbox was empty and the loop must be woken.
    func append(_ more: [OutgoingRequest]) -> Bool {
        requests.withLockedValue { requests in
            defer { requests += more }
            return requests.isEmpty
        }
    }

    func removeAll() -> [OutgoingRequest] {
        requests.withLockedValue { requests in
            defer { requests = [] }
            return requests
        }
    }
}
