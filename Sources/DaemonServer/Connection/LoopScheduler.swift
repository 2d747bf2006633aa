import DequeModule
import NIOCore
import SocketLoops

/// The time of one event loop, shared out among accounts: in each round an account has its ``LoopShare/allowance``,
/// over all of its connections; it is longer for an account that has the loop for itself. What an account has left to
/// do then is done in turns with others', one account in a round (F66).
///
/// So whoever asks for little is answered in the round in which it asks, behind the shares of those who ask for much
/// and never behind all of what they ask for. Within an account, connections are served first come, first served, also
/// across rounds. Used on the loop alone.
final class LoopScheduler {
    private let round: LoopRound
    /// Of all connections of the loop.
    let latencies: LatencyRecorder
    /// Does something in a later round.
    private let schedule: (@escaping () -> Void) -> Void
    private var shares: [UInt32: LoopShare] = [:]
    /// Of accounts that have left with a debt: they come back with what is left of it.
    private var debtors: [UInt32: LoopShare] = [:]
    /// Those that have something left to do.
    private var line: Deque<LoopShare> = []
    private var isScheduled = false

    init(
        round: LoopRound, latencies: LatencyRecorder = LatencyRecorder(),
        schedule: @escaping (@escaping () -> Void) -> Void
    ) {
        self.round = round
        self.latencies = latencies
        self.schedule = schedule
    }

    /// The share of an account, for one of its connections more.
    func enter(_ account: UInt32) -> LoopShare {
        let share =
            shares[account] ?? debtors.removeValue(forKey: account)
            ?? LoopShare(account: account, round: round) { [unowned self] in wait($0) }
        share.connections += 1
        shares[account] = share
        shareOut()
        return share
    }

    func leave(_ share: LoopShare) {
        share.connections -= 1
        guard share.connections == 0 else { return }
        shares[share.account] = nil
        share.allowance = LoopShare.sharedAllowance
        debtors[share.account] = share
        debtors = debtors.filter { $0.value.hasDebt }
        shareOut()
    }

    /// Rounds are short where somebody may come meanwhile, and else as long as makes them cost nothing.
    private func shareOut() {
        guard shares.count <= 2 else { return }
        let allowance = shares.count == 1 ? LoopShare.wholeAllowance : LoopShare.sharedAllowance
        for share in shares.values { share.allowance = allowance }
    }

    private func wait(_ share: LoopShare) {
        line.append(share)
        scheduleTurn()
    }

    private func scheduleTurn() {
        guard !isScheduled, !line.isEmpty else { return }
        isScheduled = true
        schedule { [self] in
            isScheduled = false
            turn()
        }
    }

    private func turn() {
        guard let share = line.popFirst() else { return }
        share.takeTurn()
        if share.isInLine { line.append(share) }
        scheduleTurn()
    }
}

/// What one account may do in a round of the loop, and what it has left to do.
final class LoopShare {
    let account: UInt32
    fileprivate var connections = 0
    private let round: LoopRound
    private var lastRound: UInt64 = 0
    /// Nanoseconds of the loop's time in this round, and what was spent too much in those before.
    private var spent: Int64 = 0
    /// Nanoseconds that the commands may have taken that have begun since the clock was looked at.
    private var estimate: Int64 = 0
    private var line: Deque<() -> Void> = []
    /// What came since the last turn. It goes to the end of the line, ordered by when its connection was served last.
    private var arrivals: [Arrival] = []
    private var served: UInt64 = 0
    /// The round up to which all of the account's connections wait in line, since time ran out not long ago.
    private var queuesUntil: UInt64 = 0
    private var isTakingTurn = false
    private let wait: (LoopShare) -> Void

    /// What may be done in a round.
    fileprivate(set) var allowance = sharedAllowance
    /// Where there are connections of several accounts: a few times what a hit takes.
    static var sharedAllowance: Int64 { 100_000 }
    static var wholeAllowance: Int64 { 500_000 }
    /// A command that does not leave the loop. The clock costs a hundredth of it.
    static var command: Int64 { 2_000 }
    /// Rounds for which connections wait in line after time ran out. Else those that the poller names first would be
    /// served first in each round that begins with an empty line.
    private static var roundsInLine: UInt64 { 16 }
    /// Rounds after which a debt is forgiven: a machine that stood still was nobody's doing.
    private static var longestDebt: Int64 { 100 }

    private struct Arrival {
        let lastServed: UInt64
        let number: Int
        let work: () -> Void
    }

    fileprivate init(account: UInt32, round: LoopRound, wait: @escaping (LoopShare) -> Void) {
        self.account = account
        self.round = round
        self.wait = wait
    }

    /// Says that somebody begins to work. Each new round has a new allowance, of which debts are paid first.
    func begin() {
        guard lastRound != round.number else { return }
        let rounds = Int64(min(round.number &- lastRound, UInt64(Self.longestDebt)))
        lastRound = round.number
        spent = max(0, min(spent, Self.longestDebt * allowance) - rounds * allowance)
    }

    func beginCommand() { estimate += Self.command }

    /// Counts the time since the last look at the clock as the account's.
    func charge() { charge(round.lap().nanoseconds) }

    /// - Parameter nanoseconds: what was begun costs no less than was estimated.
    func charge(_ nanoseconds: Int64) {
        spent += max(nanoseconds, estimate)
        estimate = 0
    }

    /// Whether more was spent than the rounds so far have paid for.
    fileprivate var hasDebt: Bool {
        begin()
        return spent > 0
    }

    /// Whether there is time left in this round.
    var hasTime: Bool { spent + estimate < allowance }
    /// And nobody of the account who waits for it since earlier.
    var mayGoOn: Bool { hasTime && (isTakingTurn || !isInLine && round.number >= queuesUntil) }

    fileprivate var isInLine: Bool { !line.isEmpty || !arrivals.isEmpty }

    /// Returns a number for a connection that is being served: larger than all before.
    func serve() -> UInt64 {
        served += 1
        return served
    }

    /// Does something when it is the account's turn, after what its other connections left earlier.
    ///
    /// Several connections that are ready in one round come in the poller's order, which is the same in each round. Put
    /// in line in that order, the first of them would be served more often than the last.
    /// - Parameter lastServed: what ``serve()`` returned for the connection; 0 if it was not served yet.
    func goOnLater(lastServed: UInt64 = 0, _ work: @escaping () -> Void) {
        let isFirst = !isInLine
        if !hasTime { noteShortage() }
        arrivals.append(Arrival(lastServed: lastServed, number: arrivals.count, work: work))
        if isFirst && !isTakingTurn { wait(self) }
    }

    fileprivate func takeTurn() {
        isTakingTurn = true
        begin()
        arrivals.sort { ($0.lastServed, $0.number) < ($1.lastServed, $1.number) }
        for arrival in arrivals { line.append(arrival.work) }
        arrivals.removeAll(keepingCapacity: true)
        // Each but once: who has more to do has come back to the end.
        for _ in 0..<line.count {
            guard hasTime, let work = line.popFirst() else { break }
            work()
        }
        isTakingTurn = false
        if !hasTime { noteShortage() }
    }

    private func noteShortage() { queuesUntil = round.number + Self.roundsInLine }
}
