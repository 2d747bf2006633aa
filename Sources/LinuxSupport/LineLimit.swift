/// So many lines of a kind in a minute; the rest is counted, and the count is told with the first line after that,
/// whichever kind it is of. Costs a look into a table for each line.
public struct LineLimit<Kind: Hashable & Sendable>: Sendable {
    private let most: Int
    /// When the period began, in seconds.
    private var begin: Int64 = 0
    /// Of each kind in the period, whether they were written or not.
    private var lines: [Kind: Int] = [:]

    /// Seconds.
    public static var period: Int64 { 60 }

    /// - Parameter most: lines of one kind in ``period``.
    public init(most: Int) { self.most = most }

    /// Counts a line that is about to be written.
    /// - Parameter now: seconds, by any clock.
    /// - Returns: whether it may be, and how many were not in the period that has ended.
    public mutating func count(_ kind: Kind, at now: Int64) -> (isWritten: Bool, unwritten: [Kind: Int]) {
        var unwritten: [Kind: Int] = [:]
        if abs(now - begin) >= Self.period {
            unwritten = lines.compactMapValues { $0 > most ? $0 - most : nil }
            (begin, lines) = (now, [:])
        }
        let count = lines[kind, default: 0] + 1
        lines[kind] = count
        return (count <= most, unwritten)
    }
}
