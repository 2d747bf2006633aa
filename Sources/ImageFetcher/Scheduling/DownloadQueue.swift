import DequeModule
import NIOCore

/// Which download begins next, and how many may run at once: in all, of one uid, and from one origin.
///
/// A value without effects. Downloads wait in one line per origin and uid. Whenever there is room, the origins take turns, and
/// within an origin the uids do: a uid that asks for a thousand images is served no sooner than one that asks for one (I8),
/// and an origin that is slow holds up nobody who waits for another. (One ring of uids for all origins would not do:
/// which uid's turn it is when a slot of one origin falls free would depend on the slots of the others.) Some room is for uids that have
/// nothing under way: see ``ActiveTransfers``.
///
/// Costs: each call looks at most at every origin and uid that waits, never at every download.
struct DownloadQueue {
    struct Limits {
        var active: Int
        var activePerUID: Int
        var waitingPerUID: Int

        /// Whether a uid may begin another download, wherever from.
        func permit(_ uid: UInt32, besides underWay: ActiveTransfers) -> Bool {
            underWay.count(of: uid) < activePerUID && underWay.hasRoom(for: uid, of: active)
        }
    }

    struct Entry: Equatable, Identifiable, Sendable {
        /// Grows with each download added.
        let id: UInt64
        let uid: UInt32
        /// The origin's name.
        let origin: String
        /// Downloads at once from that origin.
        let connections: Int
        /// When it has waited so long that it need not begin any more.
        let deadline: NIODeadline
    }

    /// As many downloads of the uid wait as may.
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

    /// Puts a download at the end of its line, unless there is room to begin at once or another may wait.
    /// Call ``next()`` afterwards until it gives nil.
    mutating func add(_ entry: Entry) throws(Full) {
        let waits = waitingPerUID[entry.uid, default: 0]
        guard waits < limits.waitingPerUID || mayBegin(entry) else { throw Full() }
        waitingPerUID[entry.uid] = waits + 1
        waiting += 1
        if lines[entry.origin, default: OriginLine()].append(entry) { turns.append(entry.origin) }
    }

    /// Takes the download that is to begin now; nil when none waits or none may.
    mutating func next() -> Entry? {
        guard active < limits.active else { return nil }
        for _ in 0..<turns.count {
            let origin = turns.removeFirst()
            let limits = limits
            let entry = lines[origin]?.next { limits.permit($0, besides: underWay) }
            if lines[origin]?.isWaiting == true { turns.append(origin) }
            guard let entry else { continue }
            leaveLine(entry)
            underWay.begin(of: entry.uid)
            return entry
        }
        return nil
    }

    /// Takes a download out of its line. False when it does not wait there: it has begun, or was never added.
    mutating func remove(_ entry: Entry) -> Bool {
        guard lines[entry.origin]?.remove(entry) == true else { return false }
        leaveLine(entry)
        forgetIfIdle(entry.origin)
        return true
    }

    /// Gives back the room of a download that ``next()`` gave out.
    mutating func finish(_ entry: Entry) {
        underWay.end(of: entry.uid)
        lines[entry.origin]?.underWay.end(of: entry.uid)
        forgetIfIdle(entry.origin)
    }

    /// Takes out what has waited too long. In one line only the first is looked at, and then the next: they come from one
    /// origin and wait equally long, unless a reload has changed how long that is.
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

    /// Those that wait for an origin, of all uids or of one. Costs as much as there are.
    func waiting(for origin: String, of uid: UInt32?) -> [Entry] { lines[origin]?.entries(of: uid) ?? [] }

    /// Whether the room is there already, so that the download would not wait at all.
    private func mayBegin(_ entry: Entry) -> Bool {
        limits.permit(entry.uid, besides: underWay) && waitingPerUID[entry.uid, default: 0] == 0
            && lines[entry.origin].map { !$0.isWaiting && $0.underWay.hasRoom(for: entry.uid, of: entry.connections) }
                ?? (entry.connections > 0)
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
    /// As the newest download of the origin has it.
    private var connections = 0
    private var waiting: [UInt32: Deque<DownloadQueue.Entry>] = [:]
    /// The uids that wait, the one whose turn it is first.
    private var turns: Deque<UInt32> = []

    var isWaiting: Bool { !turns.isEmpty }

    /// The one at the head of a uid's line that expires first.
    var earliest: DownloadQueue.Entry? {
        turns.compactMap { waiting[$0]?.first }.min { $0.deadline < $1.deadline }
    }

    func entries(of uid: UInt32?) -> [DownloadQueue.Entry] {
        guard let uid else { return waiting.values.flatMap { $0 } }
        return Array(waiting[uid] ?? [])
    }

    /// Returns whether it is the first that waits.
    mutating func append(_ entry: DownloadQueue.Entry) -> Bool {
        let isFirst = turns.isEmpty
        connections = entry.connections
        if waiting[entry.uid] == nil { turns.append(entry.uid) }
        waiting[entry.uid, default: []].append(entry)
        return isFirst
    }

    /// Takes the first of the uid whose turn it is, passing over uids that may not begin another.
    mutating func next(mayBegin: (UInt32) -> Bool) -> DownloadQueue.Entry? {
        guard underWay.count < connections else { return nil }
        for _ in 0..<turns.count {
            let uid = turns.removeFirst()
            guard underWay.hasRoom(for: uid, of: connections), mayBegin(uid), let entry = waiting[uid]?.popFirst()
            else {
                turns.append(uid)
                continue
            }
            if waiting[uid]?.isEmpty == true { waiting[uid] = nil } else { turns.append(uid) }
            underWay.begin(of: uid)
            return entry
        }
        return nil
    }

    mutating func remove(_ entry: DownloadQueue.Entry) -> Bool {
        guard let index = waiting[entry.uid]?.index(ofID: entry.id) else { return false }
        waiting[entry.uid]?.remove(at: index)
        if waiting[entry.uid]?.isEmpty == true {
            waiting[entry.uid] = nil
            turns.removeAll { $0 == entry.uid }
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
