import NIOConcurrencyHelpers

/// A request on its way, and who waits for the reply.
struct OutgoingRequest: Sendable {
    let request: ThumbcacheRequest
    /// nil for SUBSCRIBE, which is confirmed by pushes.
    let exchange: Exchange?
}

/// Requests between the tasks that make them and the event loop that sends them. So what several tasks ask at once
/// wakes the loop once, and goes out in one write.
final class Outbox: Sendable {
    private let requests = NIOLockedValueBox<[OutgoingRequest]>([])

    /// Whether they are the first, so that the loop is to be told.
    func put(_ more: [OutgoingRequest]) -> Bool {
        requests.withLockedValue { requests in
            defer { requests += more }
            return requests.isEmpty
        }
    }

    /// All that there are, in the order in which they came.
    func takeAll() -> [OutgoingRequest] {
        requests.withLockedValue { requests in
            defer { requests = [] }
            return requests
        }
    }
}
