/// The id of an entry in a stream: milliseconds and a number, both of which only grow.
/// https://redis.io/docs/latest/develop/data-types/streams/#entry-ids
struct StreamID: Comparable, Sendable, CustomStringConvertible {
    let milliseconds: UInt64
    let sequence: UInt64

    /// Before every entry.
    static let zero = StreamID(milliseconds: 0, sequence: 0)

    init(milliseconds: UInt64, sequence: UInt64) { (self.milliseconds, self.sequence) = (milliseconds, sequence) }

    /// Nil for what is no id as Redis writes it.
    init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let milliseconds = UInt64(parts[0]), let sequence = UInt64(parts[1]) else { return nil }
        self.init(milliseconds: milliseconds, sequence: sequence)
        guard description == text else { return nil }
    }

    var description: String { "\(milliseconds)-\(sequence)" }

    /// The greatest id that is less; of ``zero`` itself.
    var predecessor: StreamID {
        if sequence > 0 { return StreamID(milliseconds: milliseconds, sequence: sequence - 1) }
        return milliseconds > 0 ? StreamID(milliseconds: milliseconds - 1, sequence: .max) : self
    }

    static func < (left: StreamID, right: StreamID) -> Bool {
        (left.milliseconds, left.sequence) < (right.milliseconds, right.sequence)
    }
}
