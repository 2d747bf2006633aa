import DequeModule
import NIOCore

/// Which transfer begins next, and how many may run at once: in all, of one uid, and for one origin.
///
/// A value without effects. Transfers wait in one line per origin and uid (and timeout). When there is room, it goes to
/// the origin that has the fewest under way, so that one that is slow and has many holds up nobody who waits for
/// another; there it goes to the uid that has the fewest under way. Among equals they take turns: a uid that asks for a
/// thousand images is served no sooner than one that asks for one (I8). Some room is for uids that have nothing under
/// way: see ``UIDCounts``.
///
/// It is no ``FairQueue``, which shares out time in one ring of owners. Here room is shared out, of each origin by
/// itself, to who has least of it: in one ring, whose turn it is at one origin would depend on the others.
///
/// Costs: each call looks at most at every origin and uid that waits, never at every transfer.
struct TransferQueue {
    struct Limits {
        var active: Int
        var activePerUID: Int
        var waitingPerUID: Int
        /// Those that wait and those under way together.
        var inAllPerUID = Int.max

        /// Whether a uid may begin another, wherever.
        func permit(_ uid: UInt32, besides underWay: UIDCounts) -> Bool {
            underWay.count(of: uid) < activePerUID && underWay.hasRoom(for: uid, of: active)
        }
    }

    struct Entry: Equatable, Identifiable, Sendable {
        /// Grows with each transfer added.
        let id: UInt64
        let uid: UInt32
        let host: HostKey
        /// Transfers at once for the host's origin.
        let connections: Int
        /// Milliseconds that it may wait.
        let timeout: Int64
        /// When it has waited so long that it need not begin any more.
        let deadline: NIODeadline
    }

    /// As many of the uid wait as may.
    struct Full: Error {}

    var limits: Limits
    private var waitingOf = UIDCounts()
    private var underWay = UIDCounts()
    private var origins: [String: OriginLines] = [:]
    /// Numbers the turns: who has the lowest has waited longest for his next.
    private var lastTurn: UInt64 = 0

    init(limits: Limits) { self.limits = limits }

    var active: Int { underWay.total }
    var waiting: Int { waitingOf.total }

    /// Puts a transfer at the end of its line, unless there is no room to begin at once and no other may wait.
    /// Call ``next()`` afterwards until it gives nil.
    mutating func add(_ entry: Entry) throws(Full) {
        let waits = waitingOf.count(of: entry.uid)
        guard waits + underWay.count(of: entry.uid) < limits.inAllPerUID,
            waits < limits.waitingPerUID || mayBegin(entry)
        else { throw Full() }
        waitingOf.add(entry.uid)
        lastTurn += 1
        origins[entry.host.origin, default: OriginLines()].append(entry, turn: lastTurn)
    }

    /// Takes the transfer that is to begin now; nil when none waits or none may.
    mutating func next() -> Entry? {
        guard active < limits.active else { return nil }
        var best: (rank: (Int, UInt64), origin: String, line: OriginLines.Key)?
        for (name, origin) in origins {
            let rank = (origin.underWay.total, origin.turn)
            guard best.map({ rank < $0.rank }) ?? true,
                let line = origin.nextLine(mayBegin: { limits.permit($0, besides: underWay) })
            else { continue }
            best = (rank, name, line)
        }
        lastTurn += 1
        guard let best, let entry = origins[best.origin]?.begin(best.line, turn: lastTurn) else { return nil }
        waitingOf.remove(entry.uid)
        underWay.add(entry.uid)
        return entry
    }

    /// Takes a transfer out of its line. False when it does not wait there: it has begun, or was never added.
    mutating func remove(_ entry: Entry) -> Bool {
        guard origins[entry.host.origin]?.remove(entry) == true else { return false }
        waitingOf.remove(entry.uid)
        forgetIfIdle(entry.host.origin)
        return true
    }

    /// Gives back the room of a transfer that ``next()`` gave out.
    mutating func finish(_ entry: Entry) {
        underWay.remove(entry.uid)
        origins[entry.host.origin]?.underWay.remove(entry.uid)
        forgetIfIdle(entry.host.origin)
    }

    /// Takes out what has waited too long. In one line only the first is looked at, and then the next.
    mutating func expire(at now: NIODeadline) -> [Entry] {
        var expired: [Entry] = []
        // An array: the keys of the table itself would keep a copy of it.
        for origin in Array(origins.keys) {
            while let entry = origins[origin]?.earliest, entry.deadline <= now, remove(entry) { expired.append(entry) }
        }
        return expired.sorted { $0.id < $1.id }
    }

    /// When ``expire(at:)`` next has something to do; nil when nothing waits.
    var nextDeadline: NIODeadline? { origins.values.compactMap(\.earliest?.deadline).min() }

    /// Takes out what waits for a host, of all uids or of one, in its order. Costs as much as waits for its origin.
    mutating func removeAll(for host: HostKey, of uid: UInt32?) -> [Entry] {
        let entries = (origins[host.origin]?.entries(of: uid) ?? []).filter { $0.host == host }
        return entries.filter { remove($0) }.sorted { $0.id < $1.id }
    }

    /// Whether the room is there already, so that the transfer would not wait at all.
    private func mayBegin(_ entry: Entry) -> Bool {
        limits.permit(entry.uid, besides: underWay) && waitingOf.count(of: entry.uid) == 0
            && origins[entry.host.origin].map {
                $0.lines.isEmpty && $0.underWay.hasRoom(for: entry.uid, of: entry.connections)
            } ?? (entry.connections > 0)
    }

    private mutating func forgetIfIdle(_ origin: String) {
        if origins[origin]?.isIdle == true { origins[origin] = nil }
    }
}

/// Those who wait for one origin.
private struct OriginLines {
    struct Key: Hashable {
        let uid: UInt32
        /// So that in one line who came first is over first, also where a reload has changed the origin's. The links of
        /// a chain have few different ones.
        let timeout: Int64

        init(_ entry: TransferQueue.Entry) { (uid, timeout) = (entry.uid, entry.timeout) }
    }

    struct Line {
        var turn: UInt64
        var waiting: Deque<TransferQueue.Entry> = []
    }

    var underWay = UIDCounts()
    private(set) var turn: UInt64 = 0
    /// Those that are not empty.
    private(set) var lines: [Key: Line] = [:]
    /// As the newest transfer for the origin has it.
    private var connections = 0

    var isIdle: Bool { lines.isEmpty && underWay.total == 0 }

    /// The one at the head of a line that expires first.
    var earliest: TransferQueue.Entry? {
        lines.values.compactMap(\.waiting.first).min { $0.deadline < $1.deadline }
    }

    func entries(of uid: UInt32?) -> [TransferQueue.Entry] {
        lines.filter { uid == nil || $0.key.uid == uid }.values.flatMap(\.waiting)
    }

    mutating func append(_ entry: TransferQueue.Entry, turn: UInt64) {
        if lines.isEmpty { self.turn = turn }
        connections = entry.connections
        lines[Key(entry), default: Line(turn: turn)].waiting.append(entry)
    }

    /// Of the uid with the fewest under way, passing over those that may not begin another.
    func nextLine(mayBegin: (UInt32) -> Bool) -> Key? {
        guard underWay.total < connections else { return nil }
        var best: (rank: (Int, UInt64), key: Key)?
        for (key, line) in lines {
            let rank = (underWay.count(of: key.uid), line.turn)
            guard best.map({ rank < $0.rank }) ?? true, underWay.hasRoom(for: key.uid, of: connections),
                mayBegin(key.uid)
            else { continue }
            best = (rank, key)
        }
        return best?.key
    }

    /// Takes out the first of a line. The origin's turn is over, and the line's.
    mutating func begin(_ key: Key, turn: UInt64) -> TransferQueue.Entry? {
        self.turn = turn
        lines[key]?.turn = turn
        let entry = lines[key]?.waiting.popFirst()
        if lines[key]?.waiting.isEmpty == true { lines[key] = nil }
        underWay.add(key.uid)
        return entry
    }

    mutating func remove(_ entry: TransferQueue.Entry) -> Bool {
        let key = Key(entry)
        guard let index = lines[key]?.waiting.index(ofID: entry.id) else { return false }
        lines[key]?.waiting.remove(at: index)
        if lines[key]?.waiting.isEmpty == true { lines[key] = nil }
        return true
    }
}

extension Deque where Element: Identifiable, Element.ID: Comparable {
    /// Where the one with that id is, in a line that is in the order of its ids: found by halving.
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

/// How many of something there are, and whose: transfers under way, or names that are looked up.
///
/// The last eighth of the room is for uids that have none. So a uid whose transfers hang, and that has taken all it can
/// get, holds up no other (F68), unless as many others have come as there is room for.
struct UIDCounts {
    private(set) var total = 0
    private var perUID: [UInt32: Int] = [:]

    func count(of uid: UInt32) -> Int { perUID[uid, default: 0] }

    /// Whether the uid may have another, where there may be so many.
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
