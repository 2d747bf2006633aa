import NIOConcurrencyHelpers

/// The open connections, and which of them is closed when there are too many.
///
/// A connection is silent until its request has arrived, and again once it has its response. Past the limit, a silent one
/// is closed: of the peer that has most silent ones, the one that has been silent longest. A request that has arrived is
/// never dropped: while half of the connections are being answered, no further one is accepted, and it waits in the kernel.
final class ConnectionTable: Sendable {
    private struct Connection {
        let peer: String
        /// When it fell silent, by count; nil while its request is being answered.
        var silence: UInt64?
        let close: @Sendable () -> Void
    }

    private struct State {
        var connections: [UInt64: Connection] = [:]
        var answered = 0
        /// The last number given to a connection or a silence.
        var last: UInt64 = 0

        mutating func next() -> UInt64 {
            last += 1
            return last
        }

        /// Removes the silent connection that gives way to a newcomer, if there is one.
        mutating func removeVictim(newcomer: String) -> Connection? {
            let silent = connections.filter { $0.value.silence != nil }
            var counts = [newcomer: 1]
            for connection in silent.values { counts[connection.peer, default: 0] += 1 }
            let victim = silent.max { one, other in
                let (fewer, more) = (counts[one.value.peer] ?? 0, counts[other.value.peer] ?? 0)
                return fewer != more ? fewer < more : (one.value.silence ?? 0) > (other.value.silence ?? 0)
            }
            return victim.flatMap { connections.removeValue(forKey: $0.key) }
        }
    }

    private let limit: Int
    private let state = NIOLockedValueBox(State())

    /// - Parameter limit: connections, silent or not.
    init(limit: Int) { self.limit = limit }

    var count: Int { state.withLockedValue { $0.connections.count } }

    /// Whether another connection may be accepted.
    var isAccepting: Bool { state.withLockedValue { $0.answered < max(1, limit / 2) } }

    /// Adds a connection and, past the limit, closes a silent one.
    /// - Parameter close: called without a lock, on any thread.
    /// - Returns: the number of the connection.
    func add(peer: String, close: @escaping @Sendable () -> Void) -> UInt64 {
        let (id, victim) = state.withLockedValue { state -> (UInt64, Connection?) in
            let id = state.next()
            let victim = state.connections.count >= limit ? state.removeVictim(newcomer: peer) : nil
            let silence = state.next()
            state.connections[id] = Connection(peer: peer, silence: silence, close: close)
            return (id, victim)
        }
        victim?.close()
        return id
    }

    /// The request has arrived. Returns false if the connection was closed for another one.
    func beginAnswer(_ id: UInt64) -> Bool {
        state.withLockedValue { state in
            guard let connection = state.connections[id] else { return false }
            if connection.silence != nil { state.answered += 1 }
            state.connections[id]?.silence = nil
            return true
        }
    }

    /// The response is written; the connection remains until its peer closes it.
    func endAnswer(_ id: UInt64) {
        state.withLockedValue { state in
            guard let connection = state.connections[id], connection.silence == nil else { return }
            state.answered -= 1
            let silence = state.next()
            state.connections[id]?.silence = silence
        }
    }

    func remove(_ id: UInt64) {
        state.withLockedValue { state in
            guard let connection = state.connections.removeValue(forKey: id) else { return }
            if connection.silence == nil { state.answered -= 1 }
        }
    }
}
