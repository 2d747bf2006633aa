import NIOCore

/// Fields of INFO with Redis's names and meanings, for tools written for Redis. Values are those of the caller's
/// account; for observers, of all.
extension PeerRegistry {
    public typealias Lines = [(name: String, value: String)]

    /// The counters of one account, or of all.
    struct Figures: Sendable {
        var connections = 0
        /// Connections that wait for images.
        var waiting = 0
        /// Connections accepted since the start.
        var accepted = 0
        var counts = ClientCounts()
        var commandsPerSecond = 0
    }

    public func clientLines(for peer: Peer) -> Lines {
        let own = figures(for: peer, now: .now())
        return [("connected_clients", "\(own.connections)"), ("blocked_clients", "\(own.waiting)")]
    }

    /// - Parameter evicted: images of all accounts evicted from disk.
    public func statisticsLines(for peer: Peer, evicted: Int) -> Lines {
        let own = figures(for: peer, now: .now())
        var lines = [
            ("total_connections_received", "\(own.accepted)"),
            ("total_commands_processed", "\(own.counts.commands)"),
            ("instantaneous_ops_per_sec", "\(own.commandsPerSecond)"),
        ]
        if peer.isObserver {
            lines += [("rejected_connections", "\(statistics.refused)"), ("evicted_keys", "\(evicted)")]
        }
        return lines + [("keyspace_hits", "\(own.counts.hits)"), ("keyspace_misses", "\(own.counts.misses)")]
    }
}
