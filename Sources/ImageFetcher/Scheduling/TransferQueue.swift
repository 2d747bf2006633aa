import DequeModule
import NIOCore

/// Which transfer begins next, and how many may run at once: in all, of one uid, and for one origin.
///
/// A value without effects. Transfers wait in one line per origin and uid (and timeout). A free place goes to the
/// origin that has the fewest under way, so that one that is slow and holds many places holds up nobody who waits for
/// another; there it goes to the uid that has the fewest under way. Among equals they take turns: a uid that asks for a
/// thousand images is served no sooner than one that asks for one (I8). (One ring of uids for all origins would not do:
/// which uid's turn it is when a place of one origin falls free would depend on the places of the others.) Some room is
/// for uids that have nothing under way: see ``ActiveTransfers``.
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
        func permit(_ uid: UInt32, besides underWay: ActiveTransfers) -> Bool {
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
    private(set) var waiting = 0
    private var underWay = ActiveTransfers()
    private var waitingPerUID: [UInt32: Int] = [:]
    private var lines: [String: OriginLine] = [:]
    /// The origins that somebody waits for, the one whose turn it is first.
    private var turns: Deque<String> = []

    init(limits: Limits) {
        self.limits = limits
    }

    var active: Int { underWay.count }

    /// Puts a transfer at the end of its line, unless there is room to begin at once or another may wait.
    /// Call ``next()`` afterwards until it gives nil.
    mutating func add(_ entry: Entry) throws(Full) {
        let waits = waitingPerUID[entry.uid, default: 0]
        guard waits + underWay.count(of: entry.uid) < limits.inAllPerUID else { throw Full() }
        guard waits < limits.waitingPerUID || mayBegin(entry) else { throw Full() }
        waitingPerUID[entry.uid] = waits + 1
        waiting += 1
        if lines[entry.host.origin, default: OriginLine()].append(entry) { turns.append(entry.host.origin) }
    }

    /// Takes the transfer that is to begin now; nil when none waits or none may.
    mutating func next() -> Entry? {
        guard active < limits.active else { return nil }
        var best: (turn: Int, uidTurn: Int, underWay: Int)?
        for turn in turns.indices {
            guard let line = lines[turns[turn]], line.underWay.count < best?.underWay ?? .max,
                let uidTurn = line.nextTurn(mayBegin: { limits.permit($0, besides: underWay) })
            else { continue }
            best = (turn, uidTurn, line.underWay.count)
        }
        guard let best else { return nil }
        let origin = turns.remove(at: best.turn)
        guard let entry = lines[origin]?.take(best.uidTurn) else { return nil }
        if lines[origin]?.isWaiting == true { turns.append(origin) }
        leaveLine(entry)
        underWay.begin(of: entry.uid)
        return entry
    }

    /// Takes a transfer out of its line. False when it does not wait there: it has begun, or was never added.
    mutating func remove(_ entry: Entry) -> Bool {
        guard lines[entry.host.origin]?.remove(entry) == true else { return false }
        leaveLine(entry)
        forgetIfIdle(entry.host.origin)
        return true
    }

    /// Gives back the room of a transfer that ``next()`` gave out.
    mutating func finish(_ entry: Entry) {
        underWay.end(of: entry.uid)
        lines[entry.host.origin]?.underWay.end(of: entry.uid)
        forgetIfIdle(entry.host.origin)
    }

    /// Takes out what has waited too long. In one line only the first is looked at, and then the next.
    mutating func expire(at now: NIODeadline) -> [Entry] {
        var expired: [Entry] = []
        for origin in turns {
            while let entry = lines[origin]?.earliest, entry.deadline <= now, remove(entry) { expired.append(entry) }
        }
        return expired
    }

    /// When ``expire(at:)`` next has something to do; nil when nothing waits.
    var nextDeadline: NIODeadline? {
        turns.compactMap { lines[$0]?.earliest?.deadline }.min()
    }

    /// Takes out what waits for a host, of all uids or of one; in the order in which it came. Costs as much as waits
    /// for its origin.
    mutating func removeAll(for host: HostKey, of uid: UInt32?) -> [Entry] {
        let entries = (lines[host.origin]?.entries(of: uid) ?? []).filter { $0.host == host }
        return entries.filter { remove($0) }.sorted { $0.id < $1.id }
    }

    /// Whether the room is there already, so that the transfer would not wait at all.
    private func mayBegin(_ entry: Entry) -> Bool {
        limits.permit(entry.uid, besides: underWay) && waitingPerUID[entry.uid, default: 0] == 0
            && lines[entry.host.origin].map {
                !$0.isWaiting && $0.underWay.hasRoom(for: entry.uid, of: entry.connections)
            } ?? (entry.connections > 0)
    }

    private mutating func leaveLine(_ entry: Entry) {
        waiting -= 1
        waitingPerUID[entry.uid, default: 0] -= 1
        if waitingPerUID[entry.uid] == 0 { waitingPerUID[entry.uid] = nil }
    }

    private mutating func forgetIfIdle(_ origin: String) {
        guard let line = lines[origin], !line.isWaiting else { return }
        turns.removeAll { $0 == origin }
        if line.underWay.count == 0 { lines[origin] = nil }
    }
}

/// Those who wait for one origin.
private struct OriginLine {
    var underWay = ActiveTransfers()
    /// As the newest transfer for the origin has it.
    private var connections = 0
    private var waiting: [Line: Deque<TransferQueue.Entry>] = [:]
    /// The lines that are not empty, the one whose turn it is first.
    private var turns: Deque<Line> = []

    private struct Line: Hashable {
        let uid: UInt32
        /// So that in one line who came first is over first, also where a reload has changed the origin's.
        let timeout: Int64

        init(_ entry: TransferQueue.Entry) { (uid, timeout) = (entry.uid, entry.timeout) }
    }

    var isWaiting: Bool { !turns.isEmpty }

    /// The one at the head of a line that expires first.
    var earliest: TransferQueue.Entry? {
        turns.compactMap { waiting[$0]?.first }.min { $0.deadline < $1.deadline }
    }

    func entries(of uid: UInt32?) -> [TransferQueue.Entry] {
        waiting.filter { uid == nil || $0.key.uid == uid }.values.flatMap { $0 }
    }

    /// Returns whether it is the first that waits.
    mutating func append(_ entry: TransferQueue.Entry) -> Bool {
        let isFirst = turns.isEmpty
        connections = entry.connections
        let line = Line(entry)
        if waiting[line] == nil { turns.append(line) }
        waiting[line, default: []].append(entry)
        return isFirst
    }

    /// Which of the turns is next: of the uid with the fewest under way, passing over those that may not begin another.
    func nextTurn(mayBegin: (UInt32) -> Bool) -> Int? {
        guard underWay.count < connections else { return nil }
        return turns.indices
            .filter { underWay.hasRoom(for: turns[$0].uid, of: connections) && mayBegin(turns[$0].uid) }
            .min { underWay.count(of: turns[$0].uid) < underWay.count(of: turns[$1].uid) }
    }

    /// Begins the first of the uid that has that turn.
    mutating func take(_ turn: Int) -> TransferQueue.Entry? {
        let line = turns.remove(at: turn)
        let entry = waiting[line]?.popFirst()
        if waiting[line]?.isEmpty == true { waiting[line] = nil } else { turns.append(line) }
        underWay.begin(of: line.uid)
        return entry
    }

    mutating func remove(_ entry: TransferQueue.Entry) -> Bool {
        let line = Line(entry)
        guard let index = waiting[line]?.index(ofID: entry.id) else { return false }
        waiting[line]?.remove(at: index)
        if waiting[line]?.isEmpty == true {
            waiting[line] = nil
            turns.removeAll { $0 == line }
        }
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
