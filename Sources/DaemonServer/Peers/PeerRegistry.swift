import NIOConcurrencyHelpers
import NIOCore
import SocketLoops
import Synchronization
import ThumbcacheProtocol

/// Who is connected: counts connections and waiting requests of each account, which may have many uids, against their
/// limits, and finds every connection again when the daemon stops.
public final class PeerRegistry: Sendable {
    public struct Statistics: Sendable {
        public fileprivate(set) var connections = 0
        public fileprivate(set) var accepted = 0
        public fileprivate(set) var refused = 0
        /// Closed in favour of others.
        public fileprivate(set) var evicted = 0
    }

    fileprivate struct State {
        var lastID: UInt64 = 0
        var connections: [UInt64: Member] = [:]
        /// Those who have connections.
        var accounts: [UInt32: Account] = [:]
        /// Of all that ever came.
        var histories: [UInt32: History] = [:]
        /// Of all together.
        var history: History
        var statistics = Statistics()
        /// Refused, and still open so that their peers can read why.
        var lingering = 0
        var isDraining = false
        var drained: (@Sendable () -> Void)?
    }

    fileprivate struct Account {
        let load = PeerLoad()
        var connections = 0
        /// Those of them that can give way to others: an admin's never does.
        var evictable = 0
    }

    /// What is kept of an account when its connections have ended.
    fileprivate struct History {
        /// The last number that a connection was given.
        var lastClientID: UInt64 = 0
        /// Of connections that have ended.
        var ended = ClientCounts()
        var rate: CommandRate
    }

    fileprivate struct Member: Sendable {
        let account: UInt32
        let client: ConnectedClient
        let tell: @Sendable (Order) -> Void
    }

    /// What a connection is told, on any thread.
    enum Order: Sendable {
        /// Answer what has begun, and close.
        case drain
        /// Close at once.
        case close
        /// Say why, and close: another connection has come in for this one.
        case giveWay(String)
    }

    private let state: NIOLockedValueBox<State>
    private let accountOf: @Sendable (UInt32) -> UInt32

    /// - Parameter accountOf: the account that a uid counts for.
    public init(accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }) {
        self.accountOf = accountOf
        state = NIOLockedValueBox(State(history: History(rate: CommandRate(since: .now()))))
    }

    /// A connection that was let in.
    struct Registration: Sendable {
        let id: UInt64
        let account: UInt32
        let load: PeerLoad
        let client: ConnectedClient
    }

    /// Takes a peer in, or says which limit it is over.
    ///
    /// When there are as many connections as may be, the one that is idle longest gives way, of whoever has most, as
    /// far as the newcomer's account then has no more than that one (F80).
    func enter(
        _ peer: Peer, limits: ServerLimits, _ tell: @escaping @Sendable (Order) -> Void
    ) throws(CommandError) -> Registration {
        let account = accountOf(peer.uid)
        let (result, evicted) = state.withLockedValue { state -> (Result<Registration, CommandError>, Member?) in
            if state.isDraining { return (.failure(.stopping), nil) }
            let own = state.accounts[account]?.connections ?? 0
            let all = peer.isAdmin ? limits.connections : limits.connections - limits.adminConnections
            var evicted: Member?
            if !peer.isAdmin && own >= limits.connectionsPerUID {
                let reason =
                    "uid \(account) has \(limits.connectionsPerUID) connections (limit connections-per-uid): "
                    + "close one, or try again"
                return (state.refuse(reason), nil)
            }
            if state.connections.count >= all {
                evicted = state.evict(inFavourOf: own)
                guard evicted != nil else {
                    return (state.refuse("all \(all) connections are taken (limit connections): try again"), nil)
                }
            }
            return (.success(state.take(account, peer, tell)), evicted)
        }
        if let evicted {
            let reason = "all connections are taken (limit connections), and uid \(evicted.account) has most of them"
            evicted.tell(.giveWay("\(reason): this one, idle longest of those, is closed"))
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

    /// Closes a connection that counts nowhere, whose peer was just told why. Not at once: a client that writes its
    /// first requests before it reads would find the connection broken, and never see the reason. In a moment, or at
    /// once where many wait for theirs. A peer that leaves before makes room for others.
    /// - Parameter pause: in milliseconds.
    func closeSoon(_ stream: Stream, on loop: SocketLoop, after pause: Int64) {
        guard stream.isOpen, linger(limit: DaemonServer.refusedAtOnce) else { return stream.close() }
        let end = loop.assumeIsolated().scheduleTask(in: .milliseconds(pause)) { stream.close() }
        stream.whenClosed = {
            end.cancel()
            self.endLingering()
        }
    }

    /// Counts one more of the refused connections that stay open for a moment; false when `limit` do already.
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
        for member in members { member.tell(.drain) }
    }

    /// Closes what is still open.
    func closeAll() {
        for member in state.withLockedValue({ Array($0.connections.values) }) { member.tell(.close) }
    }

    public var statistics: Statistics { state.withLockedValue { $0.statistics } }

    /// The text of CLIENT LIST: a line for each connection of the caller's own account, to admins for each of all.
    func list(for peer: Peer, now: NIODeadline) -> String {
        let account = accountOf(peer.uid)
        let listed = state.withLockedValue { state in
            state.connections.filter { peer.isAdmin || $0.value.account == account }
        }
        return listed.sorted { $0.key < $1.key }.map { $0.value.client.line(at: now) }.joined()
    }

    /// Of the caller's own account, and to observers of all. Looks at every connection.
    func figures(for peer: Peer, now: NIODeadline) -> Figures {
        let account = peer.isObserver ? nil : accountOf(peer.uid)
        return state.withLockedValue { $0.figures(of: account, now: now) }
    }
}

/// How many requests of one account wait, over all of its connections.
final class PeerLoad: Sendable {
    private let waiting = Atomic<Int>(0)

    /// Adds a request to the queue; false when `limit` are waiting already.
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
    fileprivate mutating func take(
        _ uid: UInt32, _ peer: Peer, _ tell: @escaping @Sendable (PeerRegistry.Order) -> Void
    ) -> PeerRegistry.Registration {
        lastID += 1
        histories[uid, default: .init(rate: CommandRate(since: .now()))].lastClientID += 1
        let client = ConnectedClient(id: histories[uid]?.lastClientID ?? 0, peer: peer)
        connections[lastID] = PeerRegistry.Member(account: uid, client: client, tell: tell)
        var account = accounts[uid] ?? PeerRegistry.Account()
        account.connections += 1
        account.evictable += peer.isAdmin ? 0 : 1
        accounts[uid] = account
        statistics.accepted += 1
        statistics.connections += 1
        return PeerRegistry.Registration(id: lastID, account: uid, load: account.load, client: client)
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

    /// Makes room for a connection of an account that has so many, at the cost of who has most. Admins keep theirs.
    fileprivate mutating func evict(inFavourOf own: Int) -> PeerRegistry.Member? {
        let most = accounts.max { $0.value.evictable < $1.value.evictable }
        guard let most, most.value.evictable > own + 1 else { return nil }
        let idlest = connections.filter { $0.value.account == most.key && !$0.value.client.peer.isAdmin }
            .min { ($0.value.client.lastHeard, $0.key) < ($1.value.client.lastHeard, $1.key) }
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
        figures.commandsPerSecond = history.rate.look(at: figures.counts.commands, now)
        if let account { histories[account] = history } else { self.history = history }
        return figures
    }
}
