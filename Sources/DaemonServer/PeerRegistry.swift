import NIOConcurrencyHelpers
import NIOCore

/// Who is connected: counts connections and waiting requests against their limits, and finds every connection again
/// when the daemon stops.
public final class PeerRegistry: Sendable {
    private struct State {
        var lastID: UInt64 = 0
        var connections: [UInt64: Member] = [:]
        var loads: [UInt32: PeerLoad] = [:]
        var perUID: [UInt32: Int] = [:]
        var accepted = 0
        var refused = 0
        /// Refused, and still open so that their peers can read why.
        var lingering = 0
        var isDraining = false
        var drained: (@Sendable () -> Void)?
    }

    private struct Member: Sendable {
        let uid: UInt32
        let drain: @Sendable () -> Void
        let close: @Sendable () -> Void
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// A place among the connections.
    struct Place: Sendable {
        let id: UInt64
        let load: PeerLoad
    }

    enum Refusal: Error, Sendable, Equatable {
        case tooMany(String)
        case draining
    }

    /// Takes a peer in, or says which limit it is over.
    /// - Parameters:
    ///   - drain: tells the connection to answer what it has begun and close.
    ///   - close: closes it at once.
    func enter(
        _ peer: Peer, limits: ServerLimits, drain: @escaping @Sendable () -> Void, close: @escaping @Sendable () -> Void
    ) throws(Refusal) -> Place {
        let result = state.withLockedValue { state -> Result<Place, Refusal> in
            if state.isDraining { return .failure(.draining) }
            if !peer.isAdmin {
                let open = limits.connections - limits.adminConnections
                if state.connections.count >= open {
                    state.refused += 1
                    return .failure(.tooMany("all \(open) connections are taken (limit connections): try again"))
                }
                if state.perUID[peer.uid, default: 0] >= limits.connectionsPerUID {
                    state.refused += 1
                    return .failure(
                        .tooMany(
                            "uid \(peer.uid) has \(limits.connectionsPerUID) connections (limit connections-per-uid): "
                                + "close one, or try again"))
                }
            } else if state.connections.count >= limits.connections {
                state.refused += 1
                return .failure(
                    .tooMany("all \(limits.connections) connections are taken (limit connections): try again"))
            }
            state.lastID += 1
            state.accepted += 1
            state.connections[state.lastID] = Member(uid: peer.uid, drain: drain, close: close)
            state.perUID[peer.uid, default: 0] += 1
            let load = state.loads[peer.uid] ?? PeerLoad()
            state.loads[peer.uid] = load
            return .success(Place(id: state.lastID, load: load))
        }
        return try result.get()
    }

    func leave(_ id: UInt64) {
        let drained = state.withLockedValue { state -> (@Sendable () -> Void)? in
            guard let member = state.connections.removeValue(forKey: id) else { return nil }
            state.perUID[member.uid, default: 1] -= 1
            if state.perUID[member.uid] == 0 {
                state.perUID[member.uid] = nil
                // What its connections have left to be done still counts.
                if state.loads[member.uid]?.memory.bytes == 0 { state.loads[member.uid] = nil }
            }
            guard state.isDraining, state.connections.isEmpty else { return nil }
            defer { state.drained = nil }
            return state.drained
        }
        drained?()
    }

    /// Takes a place among the refused connections that stay open for a moment; false when `limit` do already.
    func linger(limit: Int) -> Bool {
        state.withLockedValue { state in
            guard state.lingering < limit else { return false }
            state.lingering += 1
            return true
        }
    }

    func endLingering() {
        state.withLockedValue { $0.lingering -= 1 }
    }

    /// Lets nobody in any more, and has every connection answer what it has begun, then close.
    /// - Parameter drained: called once, when the last one is gone.
    func drain(_ drained: @escaping @Sendable () -> Void) {
        let members = state.withLockedValue { state -> [Member] in
            state.isDraining = true
            if !state.connections.isEmpty { state.drained = drained }
            return Array(state.connections.values)
        }
        if members.isEmpty { return drained() }
        for member in members { member.drain() }
    }

    /// Closes what is still open.
    func closeAll() {
        for member in state.withLockedValue({ Array($0.connections.values) }) { member.close() }
    }

    struct Statistics: Sendable {
        let connections: Int
        let accepted: Int
        let refused: Int
    }

    var statistics: Statistics { state.withLockedValue { Self.statistics(of: $0) } }

    private static func statistics(of state: State) -> Statistics {
        Statistics(connections: state.connections.count, accepted: state.accepted, refused: state.refused)
    }

    /// What a uid's connections share. nil if it has none, and nothing of theirs is left.
    func load(of uid: UInt32) -> PeerLoad? {
        state.withLockedValue { $0.loads[uid] }
    }

    /// What INFO says of clients: of the caller's own, and to admins of all.
    public func lines(for peer: Peer) -> [(name: String, value: String)] {
        let (own, statistics, loads) = state.withLockedValue { state in
            (
                state.perUID[peer.uid, default: 0], Self.statistics(of: state),
                peer.isAdmin ? Array(state.loads.values) : [state.loads[peer.uid]].compactMap { $0 }
            )
        }
        let memory = [
            ("held_bytes", "\(loads.reduce(0) { $0 + $1.memory.bytes })"),
            ("waiting_for_memory", "\(loads.reduce(0) { $0 + $1.memory.waiting })"),
        ]
        guard peer.isAdmin else { return [("connected_clients", "\(own)")] + memory }
        return [
            ("connected_clients", "\(statistics.connections)"),
            ("connections_accepted", "\(statistics.accepted)"),
            ("connections_refused", "\(statistics.refused)"),
        ] + memory
    }
}
