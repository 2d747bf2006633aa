/// Which account a uid counts for. An account may use thousands of uids beside its own, those that subuid(5) gives it: shares of what there
/// is go to the account, or it would have thousands of them (F80).
///
/// Whom a cache belongs to is another matter: that is the uid (I1).
struct SubordinateUIDs: Sendable, Equatable {
    private struct Range: Sendable, Equatable {
        let first: UInt32
        let last: UInt32
        let account: UInt32
    }

    /// A line that was passed over, and why.
    struct BadLine: Equatable {
        let line: Int
        let reason: String
    }

    /// Ranges that are kept: those of more accounts than share a machine.
    static let mostRanges = 10_000

    /// In order, and none within another.
    private var ranges: [Range] = []

    /// Every uid is an account of its own.
    init() {}

    /// Reads lines of `account:first:count`. A line that cannot be used is passed over, and says nothing of the others.
    /// - Parameters:
    ///   - uidOf: nil where there is no such account.
    ///   - complain: is told of each such line, and of the first range that is one too many.
    init(_ text: String, uidOf: (_ account: String) -> UInt32?, complain: (BadLine) -> Void = { _ in }) {
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            if line.isEmpty || line.hasPrefix("#") { continue }
            guard ranges.count < Self.mostRanges else {
                complain(BadLine(line: index + 1, reason: "more than \(Self.mostRanges) ranges"))
                return
            }
            if let reason = add(line, uidOf) { complain(BadLine(line: index + 1, reason: reason)) }
        }
    }

    /// - Returns: why not, if not.
    private mutating func add(_ line: Substring, _ uidOf: (String) -> UInt32?) -> String? {
        let fields = line.split(separator: ":", omittingEmptySubsequences: false)
        guard fields.count == 3, let first = UInt32(fields[1]), let count = UInt32(fields[2]), count > 0 else {
            return "not of the form account:first:count"
        }
        let (last, isBeyond) = first.addingReportingOverflow(count - 1)
        // Root's own uid is nobody's, and all ones is no uid.
        guard first > 0, !isBeyond, last < .max else { return "a range that no uids are in" }
        guard let account = UInt32(fields[0]) ?? uidOf(String(fields[0])) else { return "an account that is not known" }
        let index = index(after: first)
        if index > 0, ranges[index - 1].last >= first { return "a range that overlaps an earlier one" }
        if index < ranges.count, ranges[index].first <= last { return "a range that overlaps an earlier one" }
        ranges.insert(Range(first: first, last: last, account: account), at: index)
        return nil
    }

    /// How many ranges begin at a uid or before it.
    private func index(after uid: UInt32) -> Int {
        var (low, high) = (0, ranges.count)
        while low < high {
            let middle = (low + high) / 2
            if ranges[middle].first <= uid { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// The account of a uid: itself, if it is in nobody's range.
    func account(of uid: UInt32) -> UInt32 { owner(of: uid) ?? uid }

    /// The account that a uid was given to; nil if it is in nobody's range.
    func owner(of uid: UInt32) -> UInt32? {
        let index = index(after: uid)
        guard index > 0, uid <= ranges[index - 1].last else { return nil }
        return ranges[index - 1].account
    }
}
