import Logging
import NIOConcurrencyHelpers
import NIOCore
import ThumbcacheProtocol

/// A connection whose channels the daemon has confirmed.
struct SubscribedConnection: Sendable {
    let connection: WireConnection
    /// Resolved after the connection's last event was delivered; fails if the waiting task is cancelled.
    let ended: OneShot<Void>
}

/// Keeps a subscription, with a new connection after each failure. Events are delivered on the event loop in the
/// daemon's order; `subscribed` is the first event of a connection and `gap` the last.
final class Subscription: Sendable {
    private let connector: Connector
    private let channels: [ThumbcacheID]
    private let configuration: ThumbcacheConfiguration
    private let logger: Logger
    private let sink: @Sendable (ThumbcacheEvent) -> Void

    /// - Parameter users: the users to subscribe to; all users of the uid if empty.
    init(
        _ client: ThumbcacheClient, users: [ThumbcacheID], sink: @escaping @Sendable (ThumbcacheEvent) -> Void
    ) {
        connector = client.connector
        configuration = client.configuration
        logger = client.logger
        channels = users.isEmpty ? ["*"] : Array(Set(users))
        self.sink = sink
    }

    /// Returns a subscribed connection after any number of attempts; nil if the client stops or the task is cancelled.
    func connection() async -> SubscribedConnection? {
        var failures = 0
        while true {
            do throws(ThumbcacheError) {
                return try await attempt()
            } catch .cancelled, .notRunning {
                return nil
            } catch {
                failures += 1
                logger.debug("subscribing failed", metadata: ["failures": "\(failures)", "error": "\(error)"])
                // The connector's backoff covers only connecting. This one also covers a daemon that rejects SUBSCRIBE.
                let pause = configuration.backoff.pause(after: failures, random: Double.random(in: 0...1))
                do {
                    try await Task.sleep(for: pause)
                } catch {
                    return nil
                }
            }
        }
    }

    private func attempt() async throws(ThumbcacheError) -> SubscribedConnection {
        let attempt = Attempt(channels: channels.count, sink: sink)
        let connection = try await connector.open(onPush: { attempt.receive($0) })
        connection.whenClosed.whenComplete { _ in attempt.end(.connectionLost) }
        var request = ThumbcacheRequest("SUBSCRIBE")
        for channel in channels { request.append(channel) }
        connection.send(request)
        do throws(ThumbcacheError) {
            try await within(configuration.connectTimeout) { () async throws(ThumbcacheError) in
                try await attempt.established.wait().get()
            }
            return SubscribedConnection(connection: connection, ended: attempt.ended)
        } catch {
            connection.close()
            throw error
        }
    }
}

/// One subscribed connection. All methods are called on the event loop.
private final class Attempt: Sendable {
    private enum Phase {
        /// The number of channels that are not confirmed yet.
        case subscribing(Int)
        case subscribed
        case ended
    }

    let established = OneShot<Void>()
    let ended = OneShot<Void>()
    private let phase: NIOLockedValueBox<Phase>
    private let sink: @Sendable (ThumbcacheEvent) -> Void

    init(channels: Int, sink: @escaping @Sendable (ThumbcacheEvent) -> Void) {
        phase = NIOLockedValueBox(.subscribing(channels))
        self.sink = sink
    }

    func receive(_ value: Value) {
        if let error = value.serverError {
            established.resolve(.failure(error))
            return
        }
        guard case .push(let elements) = value, elements.count == 3 else { return }
        switch elements[0].text {
        case "subscribe": confirm()
        case "message":
            guard let user = elements[1].bytes, let payload = elements[2].bytes,
                let event = ThumbcacheEvent(user: ThumbcacheID(user), payload: payload)
            else { return }
            sink(event)
        default: break
        }
    }

    private func confirm() {
        let isComplete = phase.withLockedValue { phase in
            guard case .subscribing(let missing) = phase else { return false }
            phase = missing > 1 ? .subscribing(missing - 1) : .subscribed
            return missing <= 1
        }
        guard isComplete else { return }
        sink(.subscribed)
        established.resolve(.success(()))
    }

    func end(_ error: ThumbcacheError) {
        let wasSubscribed = phase.withLockedValue { phase in
            defer { phase = .ended }
            return if case .subscribed = phase { true } else { false }
        }
        if wasSubscribed { sink(.gap) }
        established.resolve(.failure(error))
        ended.resolve(.success(()))
    }
}
