import LinuxSupport
import NIOCore
import SocketLoops

/// Divides the time of an event loop between accounts, so that a busy account cannot delay others (F66).
///
/// In each round of the loop, an account may work for a quantum as its events arrive, on all of its connections
/// together. Work beyond the quantum waits in a ``DeficitRoundRobin`` queue, of which each round serves one quantum. So
/// an account that needs little is served at once. Connections of an account are served first come, first served, also
/// across rounds. Used on the loop's thread only.
final class LoopScheduler {
    private struct Arrival {
        let account: LoopAccount
        let lastServed: UInt64
        let number: Int
        let work: () -> Void
    }

    private let round: LoopRound
    let latencies: LatencyRecorder
    /// Runs its argument in a later round.
    private let schedule: (@escaping () -> Void) -> Void
    private var accounts: [UInt32: LoopAccount] = [:]
    /// Accounts without connections that had a deficit when the last one closed. A new connection inherits it.
    private var idleWithDeficit: [UInt32: LoopAccount] = [:]
    private var queue = DeficitRoundRobin<LoopAccount, () -> Void>(quantum: Int(LoopAccount.sharedQuantum))
    /// Work that was enqueued after the last turn.
    private var arrivals: [Arrival] = []
    private var isScheduled = false

    init(
        round: LoopRound, latencies: LatencyRecorder = LatencyRecorder(),
        schedule: @escaping (@escaping () -> Void) -> Void
    ) {
        self.round = round
        self.latencies = latencies
        self.schedule = schedule
    }

    func enter(_ quotaAccount: UInt32) -> LoopAccount {
        let account =
            accounts[quotaAccount] ?? idleWithDeficit.removeValue(forKey: quotaAccount)
            ?? LoopAccount(quotaAccount, round: round)
        account.connections += 1
        accounts[quotaAccount] = account
        setQuantum()
        return account
    }

    func leave(_ account: LoopAccount) {
        account.connections -= 1
        guard account.connections == 0 else { return }
        accounts[account.quotaAccount] = nil
        account.quantum = LoopAccount.sharedQuantum
        idleWithDeficit[account.quotaAccount] = account
        idleWithDeficit = idleWithDeficit.filter { $0.value.hasDeficit }
        setQuantum()
    }

    /// Gives an account that is alone on the loop a long quantum, which costs less.
    private func setQuantum() {
        guard accounts.count <= 2 else { return }
        let quantum = accounts.count == 1 ? LoopAccount.soleQuantum : LoopAccount.sharedQuantum
        for account in accounts.values { account.quantum = quantum }
    }

    /// Runs `work` at a turn of the account, after the work that its other connections have enqueued before.
    ///
    /// Arrivals of one round are ordered by the time when their connection was last served: the poller always reports
    /// connections in the same order, and the first would be served more often than the last.
    /// - Parameter lastServed: the connection's last ``LoopAccount/nextServiceNumber()``; 0 before the first.
    func enqueue(_ account: LoopAccount, lastServed: UInt64 = 0, _ work: @escaping () -> Void) {
        account.waiting += 1
        account.recordShortage()
        arrivals.append(Arrival(account: account, lastServed: lastServed, number: arrivals.count, work: work))
        if !account.isRunning { scheduleTurn() }
    }

    private func scheduleTurn() {
        guard !isScheduled, !queue.isEmpty || !arrivals.isEmpty else { return }
        isScheduled = true
        schedule { [self] in
            isScheduled = false
            runTurn()
        }
    }

    /// Serves a quantum of the queue. Work that is enqueued meanwhile waits for the next turn.
    private func runTurn() {
        arrivals.sort { ($0.lastServed, $0.number) < ($1.lastServed, $1.number) }
        for arrival in arrivals { queue.append(arrival.work, of: arrival.account, cost: 0) }
        arrivals.removeAll(keepingCapacity: true)
        var spent: Int64 = 0
        while let (account, work) = queue.popFirst(where: \.mayTakeTurn) {
            let cost = account.run(work)
            queue.charge(Int(cost), to: account)
            spent += cost
            if spent >= account.quantum { break }
        }
        scheduleTurn()
    }
}

/// The time that one account has used on an event loop.
final class LoopAccount: Hashable {
    let quotaAccount: UInt32
    fileprivate var connections = 0
    /// Work in the scheduler's queue.
    fileprivate var waiting = 0
    fileprivate var isRunning = false
    private let round: LoopRound
    private var lastRound: UInt64 = 0
    /// Nanoseconds used in this round, and the deficit from earlier rounds.
    private var spent: Int64 = 0
    /// Estimated nanoseconds of the commands that began after the clock was last read.
    private var estimate: Int64 = 0
    /// Estimated nanoseconds of the sends that are postponed to the end of this round.
    private var postponed: Int64 = 0
    private var serviceNumber: UInt64 = 0
    /// The round up to which all connections of the account are enqueued, since it ran out of time recently.
    private var enqueuesUntil: UInt64 = 0

    fileprivate(set) var quantum = sharedQuantum
    /// The quantum while several accounts have connections: the time of about ten hits.
    static var sharedQuantum: Int64 { 100_000 }
    static var soleQuantum: Int64 { 500_000 }
    /// The minimum cost of a command. Reading the clock costs a hundredth of it.
    static var commandCost: Int64 { 2_000 }
    /// The usual cost of sending one connection's replies.
    static var sendCost: Int64 { 4_000 }
    /// Rounds for which connections are enqueued after time ran out. Otherwise those that the poller reports first
    /// would be served first in each round that begins with an empty queue.
    private static var roundsEnqueued: UInt64 { 16 }
    /// The maximum deficit, in quanta: the time of a suspended machine is not charged to an account.
    private static var maximumDeficit: Int64 { 100 }

    fileprivate init(_ quotaAccount: UInt32, round: LoopRound) {
        self.quotaAccount = quotaAccount
        self.round = round
    }

    static func == (one: LoopAccount, other: LoopAccount) -> Bool { one === other }

    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }

    /// Grants the quanta of the rounds since the last call, which reduce the deficit first. Called before any work.
    func startRound() {
        guard lastRound != round.number else { return }
        let rounds = Int64(min(round.number &- lastRound, UInt64(Self.maximumDeficit)))
        lastRound = round.number
        postponed = 0
        spent = max(0, min(spent, Self.maximumDeficit * quantum) - rounds * quantum)
    }

    func startCommand() { estimate += Self.commandCost }

    /// Charges the time since the clock was last read. Until ``endPostponedSend()``, a send counts as well.
    func postponeSend() { postponeSend(round.endLap().nanoseconds) }

    /// As ``postponeSend()``, with the nanoseconds to charge.
    func postponeSend(_ nanoseconds: Int64) {
        charge(nanoseconds)
        postponed += Self.sendCost
    }

    /// Call this before the send, whose time is charged as usual.
    func endPostponedSend() { postponed = max(0, postponed - Self.sendCost) }

    /// Charges the time since the clock was last read.
    func charge() { charge(round.endLap().nanoseconds) }

    /// Charges the commands that have begun: `nanoseconds`, but at least their estimated cost.
    func charge(_ nanoseconds: Int64) {
        spent += max(nanoseconds, estimate)
        estimate = 0
    }

    fileprivate var hasDeficit: Bool {
        startRound()
        return spent > 0
    }

    /// Whether the account may work longer in this round.
    var hasTime: Bool { spent + postponed + estimate < quantum }
    /// Whether the account has time and no earlier work of it is enqueued.
    var mayRun: Bool { hasTime && (isRunning || waiting == 0 && round.number >= enqueuesUntil) }

    fileprivate var mayTakeTurn: Bool {
        startRound()
        return hasTime
    }

    /// Returns a number for a connection that is being served, larger than all previous ones.
    func nextServiceNumber() -> UInt64 {
        serviceNumber += 1
        return serviceNumber
    }

    /// Runs work from the queue and returns the nanoseconds charged.
    fileprivate func run(_ work: () -> Void) -> Int64 {
        let before = spent + postponed
        waiting -= 1
        isRunning = true
        work()
        isRunning = false
        recordShortage()
        return spent + postponed - before
    }

    fileprivate func recordShortage() {
        if !hasTime { enqueuesUntil = round.number + Self.roundsEnqueued }
    }
}
