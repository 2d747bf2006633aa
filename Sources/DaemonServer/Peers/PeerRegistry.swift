import CacheCore
import NIOConcurrencyHelpers
import NIOCore
import SocketLoops
import Synchronization
import ThumbcacheProtocol

/// All connections: enforces the limits on connections and waiting requests per account, and in total. An account may
/// have many uids. Signals of the daemon, such as to drain, reach connections through the registry.
public final class PeerRegistry: Sendable {
    public struct Statistics: Sendable {
        public fileprivate(set) var connections = 0
        public fileprivate(set) var accepted = 0
        public fileprivate(set) var refused = 0
        /// Closed to make room for connections of other accounts.
        public fileprivate(set) var evicted = 0

        public var metrics: [Metric] {
            [
                Metric("connections", .gauge, unit: "connections", "Open connections.", connections, .metrics),
                Metric(
                    "connections_accepted_total", .counter, unit: "connections", "Connections accepted.", accepted),
                Metric(
                    "connections_refused_total", .counter, unit: "connections",
                    "Connections refused because of a limit.", refused),
                Metric(
                    "connections_evicted_total", .counter, unit: "connections",
                    "Connections closed to make room for connections of other accounts.", evicted),
            ]
        }
    }

    fileprivate struct State {
        var lastID: UInt64 = 0
        var connections: [UInt64: Member] = [:]
        var accounts: [UInt32: AccountState] = [:]
        /// By account, for all accounts that ever connected.
        var histories: [UInt32: History] = [:]
        var history: History
        var statistics = Statistics()
        /// Refused connections that are open until their peers have read the reason.
        var lingering = 0
        var isDraining = false
        var drained: (@Sendable () -> Void)?
    }

    fileprivate struct AccountState {
        let load = PeerLoad()
        var connections = 0
        /// Connections that can be evicted: all but an admin's.
        var evictable = 0
    }

    /// The counters of an account. They outlive its connections.
    fileprivate struct History {
        /// The id of the latest connection.
        var lastClientID: UInt64 = 0
        /// The sums over closed connections.
        var ended = ClientCounts()
        var rate: CommandRate
    }

    fileprivate struct Member: Sendable {
        let account: UInt32
        let client: ConnectedClient
        let send: @Sendable (Signal) -> Void
    }

    /// A signal to a connection. Sent from any thread.
    enum Signal: Sendable {
        /// Complete started requests, and close.
        case drain
        case close
        /// Reply with the reason, and close to make room for another connection.
        case evict(String)
    }

    private let state: NIOLockedValueBox<State>
    private let accountOf: @Sendable (UInt32) -> UInt32

    public init(accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }) {
        self.accountOf = accountOf
        state = NIOLockedValueBox(State(history: History(rate: CommandRate(since: .now()))))
    }

    struct Registration: Sendable {
        let id: UInt64
        let account: UInt32
        let load: PeerLoad
        let client: ConnectedClient
    }

    /// Registers a connection. At the limit, evicts the longest idle connection of the account with the most
    /// connections, unless the new connection's account would then have more than that one (F80).
    /// - Throws: BUSY with the limit that is reached.
    func enter(
        _ peer: Peer, limits: ServerLimits, _ send: @escaping @Sendable (Signal) -> Void
    ) throws(CommandError) -> Registration {
        let account = accountOf(peer.uid)
        let (result, evicted) = state.withLockedValue { state -> (Result<Registration, CommandError>, Member?) in
            if state.isDraining { return (.failure(.stopping), nil) }
            let own = state.accounts[account]?.connections ?? 0
            let all = peer.isAdmin ? limits.connections : limits.connections - limits.adminConnections
            var evicted: Member?
            if !peer.isAdmin && own >= limits.connectionsPerAccount {
                let reason =
                    "limits.connections-per-uid: account \(account) has \(limits.connectionsPerAccount) connections; "
                    + "close one, then retry"
                return (state.refuse(reason), nil)
            }
            if state.connections.count >= all {
                evicted = state.evict(forAccountWith: own)
                guard evicted != nil else {
                    return (state.refuse("limits.connections: all \(all) are in use; retry later"), nil)
                }
            }
            return (.success(state.register(account, peer, send)), evicted)
        }
        if let evicted {
            evicted.send(
                .evict(
                    "limits.connections reached; closed the longest idle connection of account \(evicted.account), "
                        + "which has the most"))
        }
        return try result.get()
    }

    func leave(_ id: UInt64) {
        let drained = state.withLockedValue { state -> (@Sendable () -> Void)? in
            guard state.remove(id) != nil, state.isDraining, state.connections.isEmpty else { return nil }
            defer { state.drained = nil }
            return state.drained
        }
        drained?()
    }

    /// Closes a connection that no longer counts, after `pause` milliseconds, in which its peer can read the reason.
    /// Closes at once if too many connections wait already.
    func closeSoon(_ stream: Stream, on loop: SocketLoop, after pause: Int64) {
        guard stream.isOpen, linger(limit: DaemonServer.maximumRefused) else { return stream.close() }
        let end = loop.assumeIsolated().scheduleTask(in: .milliseconds(pause)) { stream.close() }
        stream.whenClosed = {
            end.cancel()
            self.endLingering()
        }
    }

    /// Counts one more refused connection that stays open. Returns false at the limit.
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

    /// Refuses new connections, and signals all others to drain.
    /// - Parameter drained: called once, after the last connection has closed.
    func drain(_ drained: @escaping @Sendable () -> Void) {
        let members = state.withLockedValue { state -> [Member] in
            state.isDraining = true
            if !state.connections.isEmpty { state.drained = drained }
            return Array(state.connections.values)
        }
        if members.isEmpty { return drained() }
        for member in members { member.send(.drain) }
    }

    func closeAll() {
        for member in state.withLockedValue({ Array($0.connections.values) }) { member.send(.close) }
    }

    public var statistics: Statistics { state.withLockedValue { $0.statistics } }

    /// The text of CLIENT LIST: the connections of the caller's account; for admins, all.
    func list(for peer: Peer, now: NIODeadline) -> String {
        let account = accountOf(peer.uid)
        let listed = state.withLockedValue { state in
            state.connections.filter { peer.isAdmin || $0.value.account == account }
        }
        return listed.sorted { $0.key < $1.key }.map { $0.value.client.line(at: now) }.joined()
    }

    /// The counters of the caller's account; for observers, of all. Visits every connection.
    func figures(for peer: Peer, now: NIODeadline) -> Figures {
        let account = peer.isObserver ? nil : accountOf(peer.uid)
        return state.withLockedValue { $0.figures(of: account, now: now) }
    }
}

/// The number of waiting requests of one account, over all its connections.
final class PeerLoad: Sendable {
    private let waiting = Atomic<Int>(0)

    /// Counts one more waiting request. Returns false at the limit.
    func enter(limit: Int) -> Bool {
        if waiting.add(1, ordering: .relaxed).newValue <= limit { return true }
        leave()
        return false
    }

    func leave() {
        waiting.subtract(1, ordering: .relaxed)
    }
}

extension PeerRegistry.State {
    fileprivate mutating func register(
        _ account: UInt32, _ peer: Peer, _ send: @escaping @Sendable (PeerRegistry.Signal) -> Void
    ) -> PeerRegistry.Registration {
        lastID += 1
        histories[account, default: .init(rate: CommandRate(since: .now()))].lastClientID += 1
        let client = ConnectedClient(id: histories[account]?.lastClientID ?? 0, peer: peer)
        connections[lastID] = PeerRegistry.Member(account: account, client: client, send: send)
        var state = accounts[account] ?? PeerRegistry.AccountState()
        state.connections += 1
        state.evictable += peer.isAdmin ? 0 : 1
        accounts[account] = state
        statistics.accepted += 1
        statistics.connections += 1
        return PeerRegistry.Registration(id: lastID, account: account, load: state.load, client: client)
    }

    fileprivate mutating func refuse(_ reason: String) -> Result<PeerRegistry.Registration, CommandError> {
        statistics.refused += 1
        return .failure(CommandError(.busy, reason))
    }

    fileprivate mutating func remove(_ id: UInt64) -> PeerRegistry.Member? {
        guard let member = connections.removeValue(forKey: id) else { return nil }
        statistics.connections -= 1
        history.ended += member.client.counts
        histories[member.account]?.ended += member.client.counts
        accounts[member.account]?.connections -= 1
        accounts[member.account]?.evictable -= member.client.peer.isAdmin ? 0 : 1
        if accounts[member.account]?.connections == 0 { accounts[member.account] = nil }
        return member
    }

    /// Evicts a connection of the account with the most evictable ones, unless it has at most `own` + 1.
    fileprivate mutating func evict(forAccountWith own: Int) -> PeerRegistry.Member? {
        let most = accounts.max { $0.value.evictable < $1.value.evictable }
        guard let most, most.value.evictable > own + 1 else { return nil }
        let idlest = connections.filter { $0.value.account == most.key && !$0.value.client.peer.isAdmin }
            .min { ($0.value.client.lastInput, $0.key) < ($1.value.client.lastInput, $1.key) }
        guard let idlest else { return nil }
        statistics.evicted += 1
        return remove(idlest.key)
    }

    /// - Parameter account: nil for all.
    fileprivate mutating func figures(of account: UInt32?, now: NIODeadline) -> PeerRegistry.Figures {
        var figures = PeerRegistry.Figures()
        let found = if let account { histories[account] } else { Optional(history) }
        guard var history = found else { return figures }
        figures.accepted = account == nil ? statistics.accepted : Int(history.lastClientID)
        figures.counts = history.ended
        for member in connections.values where account == nil || member.account == account {
            figures.connections += 1
            figures.waiting += member.client.isWaiting ? 1 : 0
            figures.counts += member.client.counts
        }
        figures.commandsPerSecond = history.rate.update(figures.counts.commands, now)
        if let account { histories[account] = history } else { self.history = history }
        return figures
    }
}
