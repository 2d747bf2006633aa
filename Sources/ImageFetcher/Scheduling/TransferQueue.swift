import DequeModule
import NIOCore

/// Decides which transfer begins next, and limits how many run at once: in total, of one uid, and for one origin.
///
/// Free room goes to the origin with the fewest active transfers, so that a slow origin does not delay the others;
/// there to the uid with the fewest, and among equals to the one that has waited longest for its turn. A uid that
/// requests a thousand images is served no sooner than a uid that requests one (I8). Within a uid, transfers for an
/// origin begin in the order in which they came. ``UIDCounts`` keeps some room free for uids without active transfers.
///
/// Not a ``DeficitRoundRobin``, which charges for time after it was used: before the first is charged, transfers that
/// hang would occupy all of the room. A value without effects. Each call examines every waiting origin and uid at most
/// once, and never every transfer.
struct TransferQueue {
    struct Limits {
        var active: Int
        var activePerUID: Int
        var waitingPerUID: Int
        /// Limit on waiting and active transfers together.
        var totalPerUID = Int.max

        /// Whether a uid may begin another transfer, disregarding origins.
        func allows(_ uid: UInt32, active counts: UIDCounts) -> Bool {
            counts.count(of: uid) < activePerUID && counts.hasRoom(for: uid, of: active)
        }
    }

    struct Entry: Equatable, Identifiable, Sendable {
        /// Increases with each transfer.
        let id: UInt64
        let uid: UInt32
        let host: HostKey
        /// The limit on active transfers for the host's origin.
        let connections: Int
        /// Milliseconds that it may wait.
        let timeout: Int64
        /// When the transfer expires unless it has begun.
        let deadline: NIODeadline
    }

    /// A limit of ``Limits`` for one uid is reached.
    struct Full: Error {}

    var limits: Limits
    private var waitingCounts = UIDCounts()
    private var activeCounts = UIDCounts()
    private var origins: [String: OriginQueue] = [:]
    /// Turns are numbered: the lowest belongs to the origin or uid that has waited longest for its next.
    private var lastTurn: UInt64 = 0

    init(limits: Limits) { self.limits = limits }

    var active: Int { activeCounts.total }
    var waiting: Int { waitingCounts.total }

    /// Adds a transfer. Call ``next()`` afterwards until it returns nil.
    /// - Throws: if the transfer cannot begin at once and no other of its uid may wait.
    mutating func add(_ entry: Entry) throws(Full) {
        let waits = waitingCounts.count(of: entry.uid)
        guard waits + activeCounts.count(of: entry.uid) < limits.totalPerUID,
            waits < limits.waitingPerUID || mayBegin(entry)
        else { throw Full() }
        waitingCounts.add(entry.uid)
        lastTurn += 1
        origins[entry.host.origin, default: OriginQueue()].append(entry, turn: lastTurn)
    }

    /// Removes and returns the transfer that begins now; nil if none waits or none may begin.
    mutating func next() -> Entry? {
        guard active < limits.active else { return nil }
        var best: (rank: (Int, UInt64), origin: String, uid: UInt32)?
        for (name, origin) in origins {
            let rank = (origin.activeCounts.total, origin.turn)
            guard best.map({ rank < $0.rank }) ?? true,
                let uid = origin.nextUID(where: { limits.allows($0, active: activeCounts) })
            else { continue }
            best = (rank, name, uid)
        }
        lastTurn += 1
        guard let best, let entry = origins[best.origin]?.begin(of: best.uid, turn: lastTurn) else { return nil }
        waitingCounts.remove(entry.uid)
        activeCounts.add(entry.uid)
        return entry
    }

    /// Removes a waiting transfer. Returns false if it has begun or was never added.
    mutating func remove(_ entry: Entry) -> Bool {
        guard origins[entry.host.origin]?.remove(entry) == true else { return false }
        waitingCounts.remove(entry.uid)
        forgetIfIdle(entry.host.origin)
        return true
    }

    /// Releases the room of a transfer that ``next()`` returned.
    mutating func finish(_ entry: Entry) {
        activeCounts.remove(entry.uid)
        origins[entry.host.origin]?.activeCounts.remove(entry.uid)
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

    /// Removes and returns the transfers that wait for a host, of one uid or of all, in the order of their ids.
    /// Examines every transfer that waits for the host's origin.
    mutating func removeAll(for host: HostKey, of uid: UInt32?) -> [Entry] {
        let entries = (origins[host.origin]?.entries(of: uid) ?? []).filter { $0.host == host }
        return entries.filter { remove($0) }.sorted { $0.id < $1.id }
    }

    private func mayBegin(_ entry: Entry) -> Bool {
        limits.allows(entry.uid, active: activeCounts) && waitingCounts.count(of: entry.uid) == 0
            && origins[entry.host.origin].map {
                $0.isEmpty && $0.activeCounts.hasRoom(for: entry.uid, of: entry.connections)
            } ?? (entry.connections > 0)
    }

    private mutating func forgetIfIdle(_ origin: String) {
        if origins[origin]?.isIdle == true { origins[origin] = nil }
    }
}

private struct OriginQueue {
    /// The waiting transfers of one uid. Never empty.
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

    var activeCounts = UIDCounts()
    private(set) var turn: UInt64 = 0
    private var lines: [UInt32: Line] = [:]
    /// The limit on active transfers, from the newest transfer.
    private var connections = 0

    var isEmpty: Bool { lines.isEmpty }
    var isIdle: Bool { isEmpty && activeCounts.total == 0 }

    var earliest: TransferQueue.Entry? {
        lines.values.lazy.flatMap(\.waiting.values).compactMap(\.first).min { $0.deadline < $1.deadline }
    }

    func entries(of uid: UInt32?) -> [TransferQueue.Entry] {
        lines.filter { uid == nil || $0.key == uid }.values.flatMap { $0.waiting.values.joined() }
    }

    mutating func append(_ entry: TransferQueue.Entry, turn: UInt64) {
        if isEmpty { self.turn = turn }
        connections = entry.connections
        lines[entry.uid, default: Line(turn: turn)].waiting[entry.timeout, default: []].append(entry)
    }

    /// The uid with the fewest active transfers among those that may begin another.
    func nextUID(where mayBegin: (UInt32) -> Bool) -> UInt32? {
        guard activeCounts.total < connections else { return nil }
        var best: (rank: (Int, UInt64), uid: UInt32)?
        for (uid, line) in lines {
            let rank = (activeCounts.count(of: uid), line.turn)
            guard best.map({ rank < $0.rank }) ?? true, activeCounts.hasRoom(for: uid, of: connections), mayBegin(uid)
            else { continue }
            best = (rank, uid)
        }
        return best?.uid
    }

    /// Removes and returns the uid's first transfer, which ends the turn of the origin and of the uid.
    mutating func begin(of uid: UInt32, turn: UInt64) -> TransferQueue.Entry? {
        self.turn = turn
        lines[uid]?.turn = turn
        let entry = lines[uid]?.popFirst()
        removeLineIfEmpty(of: uid)
        activeCounts.add(uid)
        return entry
    }

    mutating func remove(_ entry: TransferQueue.Entry) -> Bool {
        let isRemoved = lines[entry.uid]?.remove(entry) == true
        removeLineIfEmpty(of: entry.uid)
        return isRemoved
    }

    private mutating func removeLineIfEmpty(of uid: UInt32) {
        if lines[uid]?.waiting.isEmpty == true { lines[uid] = nil }
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

/// Counts by uid, of active transfers or of name lookups.
///
/// The last eighth of the room is for uids that have none, so a uid whose transfers hang does not delay the others
/// (F68).
struct UIDCounts {
    private(set) var total = 0
    private var perUID: [UInt32: Int] = [:]

    func count(of uid: UInt32) -> Int { perUID[uid, default: 0] }

    /// Whether the uid may have another, if all uids together may have `limit`.
    func hasRoom(for uid: UInt32, of limit: Int) -> Bool {
        let free = limit - total
        return free > limit / 8 || free > 0 && perUID[uid] == nil
    }

    mutating func add(_ uid: UInt32) {
        total += 1
        perUID[uid, default: 0] += 1
    }

    mutating func remove(_ uid: UInt32) {
        total -= 1
        let rest = perUID[uid, default: 1] - 1
        perUID[uid] = rest == 0 ? nil : rest
    }
}
