import NIOCore

/// What INFO says of connections, and of what came by them: of the caller's own account, and to observers of all. The
/// names that Redis has for a figure are used with its meaning, since tools that were written for Redis read them.
extension PeerRegistry {
    public typealias Lines = [(name: String, value: String)]

    /// The connections of one account, or of all.
    struct Figures: Sendable {
        var connections = 0
        /// Those that wait for images.
        var waiting = 0
        /// Connections that were let in since the start.
        var accepted = 0
        var counts = ClientCounts()
        var commandsPerSecond = 0
    }

    /// The section `clients`.
    public func clientLines(for peer: Peer) -> Lines {
        let own = figures(for: peer, now: .now())
        let lines = [("connected_clients", "\(own.connections)"), ("blocked_clients", "\(own.waiting)")]
        guard peer.isObserver else { return lines }
        let all = statistics
        return lines + [
            ("connections_accepted", "\(all.accepted)"), ("connections_refused", "\(all.refused)"),
            ("connections_evicted", "\(all.evicted)"),
        ]
    }

    /// The section `stats`.
    /// - Parameter evicted: images that gave way to others on disk, of all accounts.
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
