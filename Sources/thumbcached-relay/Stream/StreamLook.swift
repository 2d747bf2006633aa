import NIOCore
import RESP

/// What the stream and what belongs to it were at one moment: all of it is read in one transaction, so that nothing of
/// it is from before a FLUSHALL and something else from behind.
struct StreamLook: Sendable {
    /// The name that the first relay gave this stream; another one, or none, is another stream.
    var incarnation: String?
    /// Nil where there is none.
    var stream: Stream?
    /// Milliseconds since 1970, by the server's clock.
    var time: Int64

    struct Stream: Sendable {
        /// The last id that the stream has given, also where that entry is gone.
        var lastID: StreamID
        /// Of the entries that are there; nil for none.
        var firstID: StreamID?
        /// Whether the entry of ``lastID`` is there.
        var hasLast: Bool
        /// Entries that it ever got.
        var added: Int
        /// Entries that are there.
        var count: Int
        /// Whether the entry at the position that was asked for is there.
        var hasPosition: Bool
        /// The next entries behind that position; not all where there are many.
        var entries: [StreamEntry] = []

        /// Entries that are gone. They go from the oldest on, but for what somebody deletes by hand.
        var removed: Int { max(0, added - count) }
    }
}

struct StreamEntry: Sendable {
    let id: StreamID
    let order: Result<Order, EntryError>

    init(id: StreamID, order: Result<Order, EntryError>) { (self.id, self.order) = (id, order) }

    /// As XRANGE gives it: an id, and fields and values in turns.
    init?(_ value: Value) {
        guard let parts = value.elements, parts.count == 2, let id = parts[0].text.flatMap({ StreamID($0) }) else {
            return nil
        }
        self.id = id
        let words = (parts[1].elements ?? []).compactMap(\.bytes)
        guard words.count.isMultiple(of: 2), words.count == parts[1].elements?.count else { return nil }
        let fields = stride(from: 0, to: words.count, by: 2).map { (name: words[$0], value: words[$0 + 1]) }
        order = Result { () throws(EntryError) in try FleetEntry.order(fields) }
    }
}
