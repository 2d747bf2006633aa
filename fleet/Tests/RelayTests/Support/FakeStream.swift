import Fleet
@_spi(Wire) import Thumbcache

@testable import thumbcached_relay

/// A model of a Redis stream, with the changes that can happen to one.
struct FakeStream {
    struct Entry {
        var id: StreamID
        var user: String
    }

    var streamIdentity: String?
    /// Nil if the key does not exist.
    var entries: [Entry]?
    var lastID = StreamID.zero
    /// The greatest id that was deleted with XDEL.
    var lastDeletedID = StreamID.zero
    var added = 0
    /// The server's clock, in milliseconds.
    var time: Int64 = 1
    /// Maximum number of entries of a snapshot.
    var mostEntries = 100
    /// The host's rows, the current one last.
    private var rows: [HostState] = []

    /// An identity that was set at a moment.
    static func name(_ moment: UInt64) -> String {
        let digits = String(moment, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits + String(repeating: "a", count: 16)
    }

    @discardableResult
    mutating func add(_ user: String) -> StreamID {
        if entries == nil { (lastID, lastDeletedID, added) = (.zero, .zero, 0) }
        let now = UInt64(time)
        lastID =
            now > lastID.milliseconds
            ? StreamID(milliseconds: now, sequence: 0)
            : StreamID(milliseconds: lastID.milliseconds, sequence: lastID.sequence + 1)
        added += 1
        entries = (entries ?? []) + [Entry(id: lastID, user: user)]
        return lastID
    }

    mutating func trim(to count: Int) { entries = entries.map { Array($0.suffix(count)) } }

    /// XDEL.
    mutating func delete(_ milliseconds: UInt64...) {
        for id in entries?.map(\.id) ?? [] where milliseconds.contains(id.milliseconds) {
            entries?.removeAll { $0.id == id }
            lastDeletedID = max(lastDeletedID, id)
        }
    }

    /// A failover that loses the last writes.
    mutating func lose(_ count: Int) {
        guard let all = entries, all.count > count else { return }
        entries = Array(all.dropLast(count))
        added -= count
        lastID = entries?.last?.id ?? .zero
        lastDeletedID = min(lastDeletedID, lastID)
        rows.removeAll { $0.id > lastID }
    }

    /// FLUSHALL.
    mutating func flush() {
        (streamIdentity, entries, added, rows) = (nil, nil, 0, [])
        (lastID, lastDeletedID) = (.zero, .zero)
    }

    mutating func acknowledge(_ state: HostState) { rows.append(state) }

    func snapshot(after position: StreamID) -> StreamSnapshot {
        var snapshot = StreamSnapshot(streamIdentity: streamIdentity, stream: nil, row: rows.last, time: time)
        guard let entries else { return snapshot }
        snapshot.stream = StreamSnapshot.Stream(
            lastID: lastID, firstID: entries.first?.id, lastEntryID: entries.last?.id, lastDeletedID: lastDeletedID,
            added: added, count: entries.count, hasPosition: entries.contains { $0.id == position },
            entries: entries.filter { $0.id > position }.prefix(mostEntries).map {
                StreamEntry(id: $0.id, command: .success(.logOut(ThumbcacheID($0.user), session: nil)))
            })
        return snapshot
    }
}
