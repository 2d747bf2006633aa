import DequeModule
import NIOCore

/// Decides which transfer begins next, and limits how many run at once: in total, of one account, and for one origin.
///
/// Free room goes to the origin with the fewest active transfers, so that a slow origin does not delay the others;
/// there to the account with the fewest, and among equals to the one that has waited longest for its turn. An account
/// that requests a thousand images is served no sooner than an account that requests one (I8). Within an account,
/// transfers for an origin begin in the order in which they came. ``AccountCounts`` keeps some room free for accounts
/// without active transfers.
///
/// Not a ``DeficitRoundRobin``, which charges for time after it was used: before the first is charged, transfers that
/// hang would occupy all of the room. A value without effects. Each call examines every waiting origin and account at
/// most once, and never every transfer.
struct TransferQueue {
    struct Limits {
        var active: Int
        var activePerAccount: Int
        var waitingPerAccount: Int
        /// Limit on waiting and active transfers together.
        var totalPerAccount = Int.max

        /// Whether an account may begin another transfer, disregarding origins.
        func allows(_ account: UInt32, active counts: AccountCounts) -> Bool {
            counts.count(of: account) < activePerAccount && counts.hasRoom(for: account, of: active)
        }
    }

    struct Entry: Equatable, Identifiable, Sendable {
        /// Increases with each transfer.
        let id: UInt64
        let account: UInt32
        let host: HostKey
        /// The limit on active transfers for the host's origin.
        let connections: Int
        /// Milliseconds that it may wait.
        let timeout: Int64
        /// When the transfer expires unless it has begun.
        let deadline: NIODeadline
    }

    /// A limit of ``Limits`` for one account is reached.
    struct Full: Error {}

    var limits: Limits
    private var waitingCounts = AccountCounts()
    private var activeCounts = AccountCounts()
    private var origins: [String: OriginQueue] = [:]
    /// Turns are numbered: the lowest belongs to the origin or account that has waited longest for its next.
    private var lastTurn: UInt64 = 0

    init(limits: Limits) { self.limits = limits }

    var active: Int { activeCounts.total }
    var waiting: Int { waitingCounts.total }

    /// Adds a transfer. Call ``next()`` afterwards until it returns nil.
    /// - Throws: if the transfer cannot begin at once and no other of its account may wait.
    mutating func add(_ entry: Entry) throws(Full) {
        let waits = waitingCounts.count(of: entry.account)
        guard waits + activeCounts.count(of: entry.account) < limits.totalPerAccount,
            waits < limits.waitingPerAccount || mayBegin(entry)
        else { throw Full() }
        waitingCounts.add(entry.account)
        lastTurn += 1
        origins[entry.host.origin, default: OriginQueue()].append(entry, turn: lastTurn)
    }

    /// Removes and returns the transfer that begins now; nil if none waits or none may begin.
    mutating func next() -> Entry? {
        guard active < limits.active else { return nil }
        var best: (rank: (Int, UInt64), origin: String, account: UInt32)?
        for (name, origin) in origins {
            let rank = (origin.activeCounts.total, origin.turn)
            guard best.map({ rank < $0.rank }) ?? true,
                let account = origin.nextAccount(where: { limits.allows($0, active: activeCounts) })
            else { continue }
            best = (rank, name, account)
        }
        lastTurn += 1
        guard let best, let entry = origins[best.origin]?.begin(of: best.account, turn: lastTurn) else { return nil }
        waitingCounts.remove(entry.account)
        activeCounts.add(entry.account)
        return entry
    }

    /// Removes a waiting transfer. Returns false if it has begun or was never added.
    mutating func remove(_ entry: Entry) -> Bool {
        guard origins[entry.host.origin]?.remove(entry) == true else { return false }
        waitingCounts.remove(entry.account)
        forgetIfIdle(entry.host.origin)
        return true
    }

    /// Releases the room of a transfer that ``next()`` returned.
    mutating func finish(_ entry: Entry) {
        activeCounts.remove(entry.account)
        origins[entry.host.origin]?.activeCounts.remove(entry.account)
        forgetIfIdle(entry.host.origin)
    }

    /// Removes and returns the transfers whose deadlines have passed, in the order of their ids.
    mutating func expire(at now: NIODeadline) -> [Entry] {
        var expired: [Entry] = []
        // An array: iterating over the dictionary itself would keep a copy of it.
        for origin in Array(origins.keys) {
            while let entry = origins[origin]?.earliest, entry.deadline <= now, remove(entry) { expired.append(entry) }
        }
        return expired.sorted { $0.id < $1.id }
    }

    /// The earliest deadline of a waiting transfer.
    var nextDeadline: NIODeadline? { origins.values.compactMap(\.earliest?.deadline).min() }

    /// Removes and returns the transfers that wait for a host, of one account or of all, in the order of their ids.
    /// Examines every transfer that waits for the host's origin.
    mutating func removeAll(for host: HostKey, of account: UInt32?) -> [Entry] {
        let entries = (origins[host.origin]?.entries(of: account) ?? []).filter { $0.host == host }
        return entries.filter { remove($0) }.sorted { $0.id < $1.id }
    }

    private func mayBegin(_ entry: Entry) -> Bool {
        limits.allows(entry.account, active: activeCounts) && waitingCounts.count(of: entry.account) == 0
            && origins[entry.host.origin].map {
                $0.isEmpty && $0.activeCounts.hasRoom(for: entry.account, of: entry.connections)
            } ?? (entry.connections > 0)
    }

    private mutating func forgetIfIdle(_ origin: String) {
        if origins[origin]?.isIdle == true { origins[origin] = nil }
    }
}

private struct OriginQueue {
    /// The waiting transfers of one account. Never empty.
    struct Line {
        var turn: UInt64
        /// By timeout, so that the first transfer of each deque expires first. An origin has few different timeouts.
        var waiting: [Int64: Deque<TransferQueue.Entry>] = [:]

        mutating func popFirst() -> TransferQueue.Entry? {
            guard let first = waiting.values.compactMap(\.first).min(by: { $0.id < $1.id }) else { return nil }
            remove(at: 0, timeout: first.timeout)
            return first
        }

        mutating func remove(_ entry: TransferQueue.Entry) -> Bool {
            guard let index = waiting[entry.timeout]?.index(ofID: entry.id) else { return false }
            remove(at: index, timeout: entry.timeout)
            return true
        }

        private mutating func remove(at index: Int, timeout: Int64) {
            waiting[timeout]?.remove(at: index)
            if waiting[timeout]?.isEmpty == true { waiting[timeout] = nil }
        }
    }

    var activeCounts = AccountCounts()
    private(set) var turn: UInt64 = 0
    private var lines: [UInt32: Line] = [:]
    /// The limit on active transfers, from the newest transfer.
    private var connections = 0

    var isEmpty: Bool { lines.isEmpty }
    var isIdle: Bool { isEmpty && activeCounts.total == 0 }

    var earliest: TransferQueue.Entry? {
        lines.values.lazy.flatMap(\.waiting.values).compactMap(\.first).min { $0.deadline < $1.deadline }
    }

    func entries(of account: UInt32?) -> [TransferQueue.Entry] {
        lines.filter { account == nil || $0.key == account }.values.flatMap { $0.waiting.values.joined() }
    }

    mutating func append(_ entry: TransferQueue.Entry, turn: UInt64) {
        if isEmpty { self.turn = turn }
        connections = entry.connections
        lines[entry.account, default: Line(turn: turn)].waiting[entry.timeout, default: []].append(entry)
    }

    /// The account with the fewest active transfers among those that may begin another.
    func nextAccount(where mayBegin: (UInt32) -> Bool) -> UInt32? {
        guard activeCounts.total < connections else { return nil }
        var best: (rank: (Int, UInt64), account: UInt32)?
        for (account, line) in lines {
            let rank = (activeCounts.count(of: account), line.turn)
            guard best.map({ rank < $0.rank }) ?? true, activeCounts.hasRoom(for: account, of: connections),
                mayBegin(account)
            else { continue }
            best = (rank, account)
        }
        return best?.account
    }

    /// Removes and returns the account's first transfer, which ends the turn of the origin and of the account.
    mutating func begin(of account: UInt32, turn: UInt64) -> TransferQueue.Entry? {
        self.turn = turn
        lines[account]?.turn = turn
        let entry = lines[account]?.popFirst()
        removeLineIfEmpty(of: account)
        activeCounts.add(account)
        return entry
    }

    mutating func remove(_ entry: TransferQueue.Entry) -> Bool {
        let isRemoved = lines[entry.account]?.remove(entry) == true
        removeLineIfEmpty(of: entry.account)
        return isRemoved
    }

    private mutating func removeLineIfEmpty(of account: UInt32) {
        if lines[account]?.waiting.isEmpty == true { lines[account] = nil }
    }
}

extension Deque where Element: Identifiable, Element.ID: Comparable {
    /// Binary search: the elements are in the order of their ids.
    func index(ofID id: Element.ID) -> Int? {
        var low = startIndex
        var high = endIndex
        while low < high {
            let middle = low + (high - low) / 2
            if self[middle].id < id { low = middle + 1 } else { high = middle }
        }
        return low < endIndex && self[low].id == id ? low : nil
    }
}

/// Counts by account, of active transfers or of name lookups.
///
/// The last eighth of the room is for accounts that have none, so an account whose transfers hang does not delay the
/// others (F68).
struct AccountCounts {
    private(set) var total = 0
    private var perAccount: [UInt32: Int] = [:]

    func count(of account: UInt32) -> Int { perAccount[account, default: 0] }

    /// Whether the account may have another, if all accounts together may have `limit`.
    func hasRoom(for account: UInt32, of limit: Int) -> Bool {
        let free = limit - total
        return free > limit / 8 || free > 0 && perAccount[account] == nil
    }

    mutating func add(_ account: UInt32) {
        total += 1
        perAccount[account, default: 0] += 1
    }

    mutating func remove(_ account: UInt32) {
        total -= 1
        let rest = perAccount[account, default: 1] - 1
        perAccount[account] = rest == 0 ? nil : rest
    }
}
