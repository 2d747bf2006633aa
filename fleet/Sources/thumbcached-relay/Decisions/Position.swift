import Fleet

/// How far a relay has come in which stream: everything up to there is done, or accounted for. It is written only
/// behind the daemon's receipt.
struct Position: Equatable, Sendable {
    /// ``StreamSnapshot/streamIdentity``
    var streamIdentity: String
    var id: StreamID
    /// How many entries the stream had ever got up to there: whether one behind it is gone is told by that.
    var count: Int
    /// Whether an entry of that id was there. If so, and it is neither there nor was removed, the stream is another.
    var wasSeen: Bool
    /// ``StreamSnapshot/Stream/lastDeletedID`` at the last gap: what was deleted up to there is accounted for.
    var deleted = StreamID.zero
}

/// The file that a position is kept in: a few lines of text.
extension Position {
    private static let firstLine = "thumbcached-relay 2"

    var text: String {
        "\(Self.firstLine)\nincarnation \(streamIdentity)\nid \(id)\ncount \(count)\nseen \(wasSeen ? 1 : 0)\n"
            + "deleted \(deleted)\n"
    }

    /// Nil for what is no position, or not a whole one.
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
