import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The accounts of subordinate uids, from /etc/subuid.
///
/// The file is read at startup and reload, and if it changed when a uid connects that is in no range.
struct LiveAccounts: Sendable {
    private struct State {
        var accounts = SubordinateUIDs()
        /// The file that was read; nil if it was missing.
        var file: FileIdentity?
        /// Time of the last check for a change, in nanoseconds.
        var checkedAt: Int64?
    }

    var path = "/etc/subuid"
    var directory = AccountDirectory.system
    let log: Logger
    private let state = NIOLockedValueBox(State())

    func account(of uid: UInt32) -> UInt32 { state.withLockedValue { $0.accounts.account(of: uid) } }

    /// Returns the account of a connecting uid. If it is in no range, a change of the file takes effect with the uid's
    /// next connection.
    /// - Parameter pool: reads the file and looks up names, which can take long.
    func account(ofPeer uid: UInt32, at now: Int64, readingOn pool: any BlockingPool) -> UInt32 {
        let (owner, isDue) = state.withLockedValue { state in
            let owner = state.accounts.owner(of: uid)
            guard owner == nil, state.checkedAt.map({ now - $0 >= Self.pause }) ?? true else { return (owner, false) }
            state.checkedAt = now
            return (owner, true)
        }
        if isDue {
            pool.submit(for: Self.root) {
                if file() != state.withLockedValue({ $0.file }) { read() }
            }
        }
        return owner ?? uid
    }

    /// Nanoseconds between two checks for a change.
    private static var pause: Int64 { 1_000_000_000 }
    /// The account charged for reading the file.
    private static var root: UInt32 { 0 }
    /// Maximum size of the file in bytes.
    private static var longest: Int { 1 << 20 }

    /// Reads the file. If it is missing, every uid is an account of its own; if it is unreadable, nothing changes.
    func read() {
        // Identified before it is read, so that a concurrent change is noticed at the next check.
        let file = file()
        let accounts = readAccounts()
        state.withLockedValue { state in
            state.file = file
            if let accounts { state.accounts = accounts }
        }
    }

    /// Nil if the file is missing or inaccessible.
    private func file() -> FileIdentity? {
        do throws(SystemError) {
            return try FileIdentity.of(path, followsLinks: true)
        } catch {
            return nil
        }
    }

    private func readAccounts() -> SubordinateUIDs? {
        let text: String
        do throws(PlainFileError) {
            text = try readTextFile(path, limit: Self.longest)
        } catch {
            if error.isMissing { return SubordinateUIDs() }
            log.warning(
                "subordinate uids unreadable; the previous ones stay in force",
                metadata: ["file": "\(path)", "error": "\(error)"])
            return nil
        }
        var problems: [SubordinateUIDs.BadLine] = []
        let accounts = SubordinateUIDs(text) { name in
            do throws(SystemError) {
                return try directory.uid(name)
            } catch {
                log.warning("account lookup failed", metadata: ["file": "\(path)", "error": "\(error)"])
                return nil
            }
        } onBadLine: {
            problems.append($0)
        }
        if let first = problems.first {
            // Each uid of such a range is an account of its own.
            log.warning(
                "invalid lines in the file of subordinate uids ignored",
                metadata: [
                    "file": "\(path)", "lines": "\(problems.count)", "first": "\(first.line)",
                    "reason": "\(first.reason)",
                ])
        }
        return accounts
    }
}

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

    func account(of uid: UInt32) -> UInt32 { owner(of: uid) ?? uid }

    /// The account of the range that contains the uid.
    func owner(of uid: UInt32) -> UInt32? {
        let index = index(after: uid)
        guard index > 0, uid <= ranges[index - 1].last else { return nil }
        return ranges[index - 1].account
    }
}
