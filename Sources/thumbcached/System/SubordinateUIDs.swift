/// Maps uids to the accounts that quotas and fair scheduling charge. An account may use thousands of subordinate uids
/// (subuid(5)), which share its quotas (F80). A cache belongs to the uid, not to the account (I1).
struct SubordinateUIDs: Sendable, Equatable {
    private struct Range: Sendable, Equatable {
        let first: UInt32
        let last: UInt32
        let account: UInt32
    }

    struct BadLine: Equatable {
        let line: Int
        let reason: String
    }

    static let mostRanges = 10_000

    /// Sorted; ranges do not overlap.
    private var ranges: [Range] = []

    /// No ranges: every uid is an account of its own.
    init() {}

    /// Reads lines of the form `account:first:count`. Invalid lines are ignored.
    /// - Parameter onBadLine: called for each invalid line, and for the first range beyond ``mostRanges``.
    init(_ text: String, uidOf: (_ account: String) -> UInt32?, onBadLine: (BadLine) -> Void = { _ in }) {
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            if line.isEmpty || line.hasPrefix("#") { continue }
            guard ranges.count < Self.mostRanges else {
                onBadLine(BadLine(line: index + 1, reason: "more than \(Self.mostRanges) ranges"))
                return
            }
            if let reason = add(line, uidOf) { onBadLine(BadLine(line: index + 1, reason: reason)) }
        }
    }

    /// Returns the reason why the line is invalid; nil if its range was added.
    private mutating func add(_ line: Substring, _ uidOf: (String) -> UInt32?) -> String? {
        let fields = line.split(separator: ":", omittingEmptySubsequences: false)
        guard fields.count == 3, let first = UInt32(fields[1]), let count = UInt32(fields[2]), count > 0 else {
            return "not of the form account:first:count"
        }
        let (last, isBeyond) = first.addingReportingOverflow(count - 1)
        // Root's uid cannot be subordinate, and the largest number is not a uid.
        guard first > 0, !isBeyond, last < .max else { return "a range of invalid uids" }
        guard let account = UInt32(fields[0]) ?? uidOf(String(fields[0])) else { return "an unknown account" }
        let index = index(after: first)
        if index > 0, ranges[index - 1].last >= first { return "a range that overlaps an earlier one" }
        if index < ranges.count, ranges[index].first <= last { return "a range that overlaps an earlier one" }
        ranges.insert(Range(first: first, last: last, account: account), at: index)
        return nil
    }

    /// The number of ranges that begin at or before the uid.
    private func index(after uid: UInt32) -> Int {
        var (low, high) = (0, ranges.count)
        while low < high {
            let middle = (low + high) / 2
            if ranges[middle].first <= uid { low = middle + 1 } else { high = middle }
        }
        return low
    }

    func account(of uid: UInt32) -> UInt32 { assignedAccount(of: uid) ?? uid }

    /// The account of the range that contains the uid.
    func assignedAccount(of uid: UInt32) -> UInt32? {
        let index = index(after: uid)
        guard index > 0, uid <= ranges[index - 1].last else { return nil }
        return ranges[index - 1].account
    }
}
