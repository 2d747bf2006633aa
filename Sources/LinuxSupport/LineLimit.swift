/// Limits the log lines of each kind per minute. Suppressed lines are counted and reported with the first line of a
/// later minute. Costs one dictionary lookup per line.
public struct LineLimit<Kind: Hashable & Sendable>: Sendable {
    private let most: Int
    /// In seconds.
    private var begin: Int64 = 0
    /// Lines of each kind in the period, including suppressed ones.
    private var lines: [Kind: Int] = [:]

    /// Length of a period in seconds.
    public static var period: Int64 { 60 }

    public init(most: Int) { self.most = most }

    /// Counts a line and decides whether to write it.
    /// - Parameter now: seconds of any clock.
    /// - Returns: whether to write the line, and the lines suppressed in the period that has ended.
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
