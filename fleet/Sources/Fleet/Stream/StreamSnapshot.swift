import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// The state of the stream at one moment, read in one transaction so that no FLUSHALL falls between its parts.
package struct StreamSnapshot: Sendable {
    /// The stream's identity. A different or missing one means a different stream.
    package var streamIdentity: String?
    /// Nil if the key does not exist.
    package var stream: Stream?
    /// The host's row. Nil if it is missing or invalid.
    package var row: HostState?
    /// Milliseconds since 1970, by the server's clock.
    package var time: Int64

    package init(streamIdentity: String?, stream: Stream?, row: HostState?, time: Int64) {
        (self.streamIdentity, self.stream, self.row, self.time) = (streamIdentity, stream, row, time)
    }

    package struct Stream: Sendable {
        /// The last assigned id; its entry may have been removed.
        package var lastID: StreamID
        /// Of the oldest entry, if any.
        package var firstID: StreamID?
        /// Of the newest entry, if any. Less than ``lastID`` if the last entry was removed.
        package var lastEntryID: StreamID?
        /// The greatest id deleted with XDEL. Trimming does not change it.
        package var lastDeletedID: StreamID
        /// Number of entries ever added.
        package var added: Int
        /// Number of entries present.
        package var count: Int
        /// Whether the entry at the requested position exists.
        package var hasPosition: Bool
        /// The next entries after that position, at most ``FleetStream/mostEntries``.
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

        /// Number of entries trimmed or deleted with XDEL.
        package var removed: Int { max(0, added.saturatingSubtract(count)) }

        /// Whether the entry with ``lastID`` exists.
        package var hasLast: Bool { lastEntryID == lastID }
    }
}

package struct StreamEntry: Sendable {
    package let id: StreamID
    package let command: Result<FleetCommand, EntryError>

    package init(id: StreamID, command: Result<FleetCommand, EntryError>) { (self.id, self.command) = (id, command) }

    /// Parses an entry of an XRANGE reply. Nil if it is malformed.
    package init?(_ value: Value) {
        guard let parts = value.elements, parts.count == 2, let id = parts[0].text.flatMap({ StreamID($0) }) else {
            return nil
        }
        self.id = id
        let words = (parts[1].elements ?? []).compactMap(\.bytes)
        guard words.count.isMultiple(of: 2), words.count == parts[1].elements?.count else { return nil }
        let fields = stride(from: 0, to: words.count, by: 2).map { (name: words[$0], value: words[$0 + 1]) }
        command = Result { () throws(EntryError) in try FleetEntry.command(fields) }
    }
}
