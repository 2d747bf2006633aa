import NIOConcurrencyHelpers

/// What happens to the caches of some users, for as long as somebody iterates.
///
/// Each iterator has a connection of its own, which is opened by its first ``AsyncIterator/next()`` and closed when the
/// iterator goes. A connection that breaks is a ``ThumbcacheEvent/gap``, and the next one a
/// ``ThumbcacheEvent/subscribed``. At most ``ThumbcacheConfiguration/eventBuffer`` events are kept for a slow reader;
/// one more, and a gap takes their place. The sequence ends with the client, or with the task.
public struct ThumbcacheEvents: AsyncSequence, Sendable {
    /// What is iterated over.
    public typealias Element = ThumbcacheEvent
    /// Nothing is thrown: what fails is tried again.
    public typealias Failure = Never

    let client: ThumbcacheClient
    let users: [ThumbcacheID]

    /// Subscribes anew.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: Reader(client, users)) }

    /// For one task at a time.
    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let reader: Reader

        /// The next event. nil when the client has stopped or the task is cancelled.
        public mutating func next() async -> ThumbcacheEvent? { await reader.next() }

        /// As above.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> ThumbcacheEvent? {
            await reader.next()
        }
    }
}

extension ThumbcacheClient {
    /// What happens to the caches of these users, whether they are logged in or not; of every user of the uid where
    /// none is named.
    public func events(of users: [ThumbcacheID] = []) -> ThumbcacheEvents {
        ThumbcacheEvents(client: self, users: users)
    }
}

private final class Reader: Sendable {
    private let buffer: EventBuffer
    private let subscription: Subscription
    private let connection = NIOLockedValueBox<WireConnection?>(nil)

    init(_ client: ThumbcacheClient, _ users: [ThumbcacheID]) {
        let buffer = EventBuffer(limit: client.configuration.eventBuffer)
        self.buffer = buffer
        subscription = Subscription(client, users: users) { buffer.append($0) }
    }

    deinit { connection.withLockedValue { $0 }?.close() }

    func next() async -> ThumbcacheEvent? {
        while !Task.isCancelled {
            // First, lest a gap wait for the next connection: what was kept is to be dropped at once.
            if let event = buffer.pop() { return event }
            if connection.withLockedValue({ $0?.isActive }) != true {
                guard let next = await subscription.connection() else { return nil }
                connection.withLockedValue { $0 = next }
            }
            do throws(ThumbcacheError) {
                try await buffer.wait()
            } catch {
                return nil
            }
        }
        return nil
    }
}
