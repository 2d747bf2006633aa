import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// What the stream and what belongs to it were at one moment: all of it is read in one transaction, so that nothing of
/// it is from before a FLUSHALL and something else from behind.
package struct StreamSnapshot: Sendable {
    /// The name that the first relay gave this stream; another one, or none, is another stream.
    package var streamIdentity: String?
    /// Nil where there is none.
    package var stream: Stream?
    /// Milliseconds since 1970, by the server's clock.
    package var time: Int64

    package init(streamIdentity: String?, stream: Stream?, time: Int64) {
        (self.streamIdentity, self.stream, self.time) = (streamIdentity, stream, time)
    }

    package struct Stream: Sendable {
        /// The last id that the stream has given, also where that entry is gone.
        package var lastID: StreamID
        /// Of the entries that are there; nil for none.
        package var firstID: StreamID?
        /// Of the entries that are there; nil for none. Less than ``lastID`` where the last entry was removed.
        package var lastEntryID: StreamID?
        /// The greatest id that was ever deleted with XDEL. Trimming does not change it.
        package var lastDeletedID: StreamID
        /// Entries that it ever got.
        package var added: Int
        /// Entries that are there.
        package var count: Int
        /// Whether the entry at the position that was asked for is there.
        package var hasPosition: Bool
        /// The next entries behind that position; not all where there are many.
        package var entries: [StreamEntry]

        package init(
            lastID: StreamID, firstID: StreamID?, lastEntryID: StreamID?, lastDeletedID: StreamID, added: Int,
            count: Int, hasPosition: Bool, entries: [StreamEntry] = []
        ) {
            (self.lastID, self.firstID, self.lastEntryID) = (lastID, firstID, lastEntryID)
            self.lastDeletedID = lastDeletedID
            (self.added, self.count, self.hasPosition) = (added, count, hasPosition)
            self.entries = entries
        }

        /// Entries that are gone: the oldest, which were trimmed, and those that were deleted with XDEL.
        package var removed: Int { max(0, added.saturatingSubtract(count)) }

        /// Whether the entry of ``lastID`` is there.
        package var hasLast: Bool { lastEntryID == lastID }
    }
}

package struct StreamEntry: Sendable {
    package let id: StreamID
    package let order: Result<FleetCommand, EntryError>

    package init(id: StreamID, order: Result<FleetCommand, EntryError>) { (self.id, self.order) = (id, order) }

    /// As XRANGE gives it: an id, and fields and values in turns.
    package init?(_ value: Value) {
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
