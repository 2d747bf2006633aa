import Fleet
import LinuxSupport

/// A relay's position in the stream. Saved only after the daemon has confirmed all entries up to it.
struct Position: Equatable, Sendable {
    /// ``StreamSnapshot/streamIdentity``
    var streamIdentity: String
    var id: StreamID
    /// Entries ever added up to the position, to detect unread entries that were removed.
    var count: Int
    /// Whether an entry with this id was seen. If it has disappeared without removal, the stream is a different one.
    var wasSeen: Bool
    /// ``StreamSnapshot/Stream/lastDeletedID`` at the last gap: earlier deletions are already handled.
    var deleted = StreamID.zero

    /// The position of the last of the `entries` that follow this position.
    func after(_ entries: ArraySlice<StreamEntry>) -> Position {
        guard let last = entries.last else { return self }
        var next = self
        (next.id, next.wasSeen) = (last.id, true)
        next.count = count.saturatingAdd(entries.count)
        return next
    }
}

/// The text format of the position file.
extension Position {
    private static let firstLine = "thumbcached-relay 2"

    var text: String {
        "\(Self.firstLine)\nincarnation \(streamIdentity)\nid \(id)\ncount \(count)\nseen \(wasSeen ? 1 : 0)\n"
            + "deleted \(deleted)\n"
    }

    /// Nil if the text is invalid or incomplete.
    init?(text: String) {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.count == 7, lines[0] == Self.firstLine, lines[6].isEmpty else { return nil }
        func value(_ line: Int, _ name: String) -> Substring? {
            lines[line].hasPrefix(name + " ") ? lines[line].dropFirst(name.count + 1) : nil
        }
        guard let streamIdentity = value(1, "incarnation"), StreamIdentity.isOne(streamIdentity),
            // A server's clock cannot show a later moment.
            let id = value(2, "id").flatMap({ StreamID($0) }), id.milliseconds <= UInt64(Int64.max),
            let count = value(3, "count").flatMap({ Int($0) }), count >= 0,
            let seen = value(4, "seen"), ["0", "1"].contains(seen),
            let deleted = value(5, "deleted").flatMap({ StreamID($0) })
        else { return nil }
        self.init(
            streamIdentity: String(streamIdentity), id: id, count: count, wasSeen: seen == "1", deleted: deleted)
    }
}
