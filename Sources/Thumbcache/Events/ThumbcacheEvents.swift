import NIOConcurrencyHelpers

/// A sequence of events of some users.
///
/// Each iterator uses a connection of its own, from its first ``AsyncIterator/next()`` until it is deallocated. A lost
/// connection produces ``ThumbcacheEvent/gap``, and a new one ``ThumbcacheEvent/subscribed``. If more than
/// ``ThumbcacheConfiguration/eventBuffer`` events are unread, a gap replaces them. The sequence ends when the client
/// stops or the task is cancelled.
public struct ThumbcacheEvents: AsyncSequence, Sendable {
    /// The type of the elements.
    public typealias Element = ThumbcacheEvent
    /// The sequence never fails; failures are retried.
    public typealias Failure = Never

    let client: ThumbcacheClient
    let users: [ThumbcacheID]

    /// Creates a subscription.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: Reader(client, users)) }

    /// An iterator for one task at a time.
    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let reader: Reader

        /// Returns the next event; nil when the client has stopped or the task is cancelled.
        public mutating func next() async -> ThumbcacheEvent? { await reader.next() }

        /// Returns the next event; nil when the client has stopped or the task is cancelled.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> ThumbcacheEvent? {
            await reader.next()
        }
    }
}

extension ThumbcacheClient {
    /// Returns the events of these users, whether they are logged in or not, or of all users of the uid if empty.
    public func events(of users: [ThumbcacheID] = []) -> ThumbcacheEvents {
        ThumbcacheEvents(client: self, users: users)
    }
}

private final class Reader: Sendable {
    private let buffer: EventBuffer
    private let subscription: Subscription
    private let current = NIOLockedValueBox<SubscribedConnection?>(nil)

    init(_ client: ThumbcacheClient, _ users: [ThumbcacheID]) {
        let buffer = EventBuffer(limit: client.configuration.eventBuffer)
        self.buffer = buffer
        subscription = Subscription(client, users: users) { buffer.append($0) }
    }

    deinit { current.withLockedValue { $0 }?.connection.close() }

    func next() async -> ThumbcacheEvent? {
        while !Task.isCancelled {
            // Buffered events come first: a gap must not wait for the next connection.
            if let event = buffer.pop() { return event }
            if let subscribed = current.withLockedValue({ $0 }) {
                if !subscribed.connection.isActive {
                    // The gap may follow a moment after the connection has become inactive.
                    _ = await subscribed.ended.wait()
                    current.withLockedValue { $0 = nil }
                    continue
                }
            } else {
                guard let next = await subscription.connection() else { return nil }
                current.withLockedValue { $0 = next }
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
