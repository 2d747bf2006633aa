/// The id of a stream entry: milliseconds and a sequence number.
/// https://redis.io/docs/latest/develop/data-types/streams/#entry-ids
package struct StreamID: Comparable, Sendable, CustomStringConvertible {
    package let milliseconds: UInt64
    package let sequence: UInt64

    /// Before every entry.
    package static let zero = StreamID(milliseconds: 0, sequence: 0)

    /// The greatest possible id; no entry can follow it.
    package static let last = StreamID(milliseconds: .max, sequence: .max)

    package init(milliseconds: UInt64, sequence: UInt64) {
        (self.milliseconds, self.sequence) = (milliseconds, sequence)
    }

    /// Nil if the text is not an id in Redis's canonical form.
    package init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let milliseconds = UInt64(parts[0]), let sequence = UInt64(parts[1]) else { return nil }
        self.init(milliseconds: milliseconds, sequence: sequence)
        guard description == text else { return nil }
    }

    package var description: String { "\(milliseconds)-\(sequence)" }

    /// The greatest smaller id; ``zero`` for ``zero``.
    package var predecessor: StreamID {
        if sequence > 0 { return StreamID(milliseconds: milliseconds, sequence: sequence - 1) }
        return milliseconds > 0 ? StreamID(milliseconds: milliseconds - 1, sequence: .max) : self
    }

    package static func < (left: StreamID, right: StreamID) -> Bool {
        (left.milliseconds, left.sequence) < (right.milliseconds, right.sequence)
    }
}
