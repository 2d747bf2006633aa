import DequeModule
import NIOCore

/// Which token request begins next, and how many are under way: what ``DownloadQueue`` is to downloads.
///
/// A value without effects. Requests wait in one line per host and uid (and timeout). A free place goes to the origin that has the fewest under way,
/// so that endpoints that do not answer and hold all places keep no other waiting; among those of the same, to the uid that has the
/// fewest, so that one with many users keeps nobody else waiting (I8); else to who came first. The last places are for uids that have none.
///
/// Costs: each call looks at most at every line, never at every request.
struct TokenQueue {
    struct Entry: Equatable, Identifiable {
        /// Grows with each request added.
        let id: UInt64
        let uid: UInt32
        let host: HostKey
        /// Milliseconds that it may wait.
        let timeout: Int64
        /// When these are over, and it need not begin any more.
        let deadline: NIODeadline
    }

    private struct Line: Hashable {
        let host: HostKey
        let uid: UInt32
        /// So that in one line who came first is over first, also where a reload has changed the origin's.
        let timeout: Int64

        init(_ entry: Entry) { (host, uid, timeout) = (entry.host, entry.uid, entry.timeout) }
    }

    let most: Int
    let mostPerOrigin: Int
    private var lines: [Line: Deque<Entry>] = [:]
    private var underWay = ActiveTransfers()
    private var perOrigin: [String: ActiveTransfers] = [:]

    init(most: Int, mostPerOrigin: Int) {
        self.most = most
        self.mostPerOrigin = mostPerOrigin
    }

    mutating func add(_ entry: Entry) { lines[Line(entry), default: []].append(entry) }

    /// Takes the request that is to begin now; nil when none waits or none may.
    mutating func next() -> Entry? {
        var best: (line: Line, rank: (Int, Int, UInt64))?
        for (line, entries) in lines {
            let ofOrigin = perOrigin[line.host.origin, default: .init()]
            guard let first = entries.first, underWay.hasRoom(for: line.uid, of: most),
                ofOrigin.hasRoom(for: line.uid, of: mostPerOrigin)
            else { continue }
            let rank = (ofOrigin.count, underWay.count(of: line.uid), first.id)
            if best.map({ rank < $0.rank }) ?? true { best = (line, rank) }
        }
        guard let best, let entry = lines[best.line]?.first, remove(entry) else { return nil }
        underWay.begin(of: entry.uid)
        perOrigin[entry.host.origin, default: .init()].begin(of: entry.uid)
        return entry
    }

    /// Gives back the place of a request that ``next()`` gave out.
    mutating func finish(_ entry: Entry) {
        underWay.end(of: entry.uid)
        perOrigin[entry.host.origin]?.end(of: entry.uid)
        if perOrigin[entry.host.origin]?.count == 0 { perOrigin[entry.host.origin] = nil }
    }

    /// Takes a request out of its line. False when it does not wait there.
    mutating func remove(_ entry: Entry) -> Bool {
        let line = Line(entry)
        guard let index = lines[line]?.index(ofID: entry.id) else { return false }
        lines[line]?.remove(at: index)
        if lines[line]?.isEmpty == true { lines[line] = nil }
        return true
    }

    /// Takes out what waits for a host, of all uids or of one; in the order in which it came.
    mutating func removeAll(for host: HostKey, of uid: UInt32?) -> [Entry] {
        let gone = lines.keys.filter { $0.host == host && (uid == nil || $0.uid == uid) }
        return gone.flatMap { lines.removeValue(forKey: $0) ?? [] }.sorted { $0.id < $1.id }
    }

    /// Takes out what has waited too long. In one line only the first is looked at, and then the next.
    mutating func expire(at now: NIODeadline) -> [Entry] {
        var expired: [Entry] = []
        for line in Array(lines.keys) {
            while let entry = lines[line]?.first, entry.deadline <= now, remove(entry) { expired.append(entry) }
        }
        return expired
    }

    /// When ``expire(at:)`` next has something to do; nil when nothing waits.
    var nextDeadline: NIODeadline? { lines.values.compactMap(\.first?.deadline).min() }
}
