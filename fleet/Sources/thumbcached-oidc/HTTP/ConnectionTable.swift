import NIOConcurrencyHelpers

/// The open connections, and which of them is closed when there are too many.
///
/// A connection is idle until its request has arrived, and again after its response. Beyond the limit an idle one is
/// closed: of the peer with the most idle ones, the one that has been idle longest. A connection whose request has
/// arrived is never closed. While half of the connections are being answered, new ones wait in the kernel.
final class ConnectionTable: Sendable {
    private struct Connection {
        let peer: String
        /// The number of the event that made it idle; nil while its request is being answered.
        var idleSince: UInt64?
        let close: @Sendable () -> Void
    }

    private struct State {
        var connections: [UInt64: Connection] = [:]
        var answered = 0
        /// The last number given to a connection or an event.
        var last: UInt64 = 0

        mutating func next() -> UInt64 {
            last += 1
            return last
        }

        /// Removes the idle connection to close for a new one, if there is one.
        mutating func removeIdle(for peer: String) -> Connection? {
            let idle = connections.filter { $0.value.idleSince != nil }
            var counts = [peer: 1]
            for connection in idle.values { counts[connection.peer, default: 0] += 1 }
            let victim = idle.max { one, other in
                let (fewer, more) = (counts[one.value.peer] ?? 0, counts[other.value.peer] ?? 0)
                return fewer != more ? fewer < more : (one.value.idleSince ?? 0) > (other.value.idleSince ?? 0)
            }
            return victim.flatMap { connections.removeValue(forKey: $0.key) }
        }
    }

    private let limit: Int
    private let state = NIOLockedValueBox(State())

    init(limit: Int) { self.limit = limit }

    var count: Int { state.withLockedValue { $0.connections.count } }

    /// Whether another connection may be accepted.
    var isAccepting: Bool { state.withLockedValue { $0.answered < max(1, limit / 2) } }

    /// Adds a connection and, past the limit, closes an idle one.
    /// - Parameter close: called without a lock, on any thread.
    /// - Returns: the number of the connection.
    func add(peer: String, close: @escaping @Sendable () -> Void) -> UInt64 {
        let (id, victim) = state.withLockedValue { state -> (UInt64, Connection?) in
            let id = state.next()
            let victim = state.connections.count >= limit ? state.removeIdle(for: peer) : nil
            let idleSince = state.next()
            state.connections[id] = Connection(peer: peer, idleSince: idleSince, close: close)
            return (id, victim)
        }
        victim?.close()
        return id
    }

    /// The request has arrived. Returns false if the connection was closed for another one.
    func beginResponse(_ id: UInt64) -> Bool {
        state.withLockedValue { state in
            guard let connection = state.connections[id] else { return false }
            if connection.idleSince != nil { state.answered += 1 }
            state.connections[id]?.idleSince = nil
            return true
        }
    }

    /// The response is written; the connection remains until its peer closes it.
    func endResponse(_ id: UInt64) {
        state.withLockedValue { state in
            guard let connection = state.connections[id], connection.idleSince == nil else { return }
            state.answered -= 1
            let idleSince = state.next()
            state.connections[id]?.idleSince = idleSince
        }
    }

    func remove(_ id: UInt64) {
        state.withLockedValue { state in
            guard let connection = state.connections.removeValue(forKey: id) else { return }
            if connection.idleSince == nil { state.answered -= 1 }
        }
    }
}
