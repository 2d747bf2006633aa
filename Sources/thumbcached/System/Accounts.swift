import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The accounts as the machine's file says now: read at the start, at a reload, and when somebody connects of whom it
/// did not speak, once it has changed. So those count for an account that was made while the daemon runs.
struct LiveAccounts: Sendable {
    private struct State {
        var accounts = SubordinateUIDs()
        /// Which file that was; nil where there was none.
        var file: FileIdentity?
        /// When somebody last looked whether it is another, in nanoseconds.
        var lookedAt: Int64?
    }

    var path = "/etc/subuid"
    var directory = AccountDirectory.system
    let log: Logger
    private let state = NIOLockedValueBox(State())

    func account(of uid: UInt32) -> UInt32 { state.withLockedValue { $0.accounts.account(of: uid) } }

    /// The same of a uid that connects. If it is in nobody's range the file is looked at, for its next connection.
    /// - Parameters:
    ///   - now: nanoseconds of a clock that nobody sets.
    ///   - pool: where files are looked at; names of accounts may be looked up there, which can take long.
    func account(ofPeer uid: UInt32, at now: Int64, lookingOn pool: any BlockingPool) -> UInt32 {
        let (owner, isDue) = state.withLockedValue { state in
            let owner = state.accounts.owner(of: uid)
            guard owner == nil, state.lookedAt.map({ now - $0 >= Self.pause }) ?? true else { return (owner, false) }
            state.lookedAt = now
            return (owner, true)
        }
        if isDue {
            pool.submit(for: Self.root) {
                if file() != state.withLockedValue({ $0.file }) { read() }
            }
        }
        return owner ?? uid
    }

    /// Nanoseconds between two looks.
    private static var pause: Int64 { 1_000_000_000 }
    /// Whose turn that takes: root writes the file.
    private static var root: UInt32 { 0 }
    /// Bytes of the file that are read.
    private static var longest: Int { 1 << 20 }

    /// Reads the file anew. Without one every uid is an account of its own; one that cannot be read changes nothing.
    func read() {
        // Before it is read: what is written meanwhile is another file.
        let file = file()
        let accounts = readAccounts()
        state.withLockedValue { state in
            state.file = file
            if let accounts { state.accounts = accounts }
        }
    }

    /// nil where there is none, or none that can be looked at.
    private func file() -> FileIdentity? {
        do throws(SystemError) {
            return try FileIdentity.of(path, followsLinks: true)
        } catch {
            return nil
        }
    }

    /// What the file says; nil if it cannot be read.
    private func readAccounts() -> SubordinateUIDs? {
        let text: String
        do throws(PlainFileError) {
            text = try readTextFile(path, limit: Self.longest)
        } catch {
            if error.isMissing { return SubordinateUIDs() }
            log.warning(
                "which uids belong to which account cannot be read; each counts as before",
                metadata: ["file": "\(path)", "error": "\(error)"])
            return nil
        }
        var problems: [SubordinateUIDs.BadLine] = []
        let accounts = SubordinateUIDs(text) { name in
            do throws(SystemError) {
                return try directory.uid(name)
            } catch {
                log.warning("an account cannot be looked up", metadata: ["file": "\(path)", "error": "\(error)"])
                return nil
            }
        } complain: {
            problems.append($0)
        }
        if let first = problems.first {
            // Each uid of such a range counts for itself.
            log.warning(
                "lines that say which uids belong to an account were passed over",
                metadata: [
                    "file": "\(path)", "lines": "\(problems.count)", "first": "\(first.line)",
                    "reason": "\(first.reason)",
                ])
        }
        return accounts
    }
}

/// Which account a uid counts for. An account may use thousands of uids beside its own, those that subuid(5) gives it:
/// shares of what there is go to the account, or it would have thousands of them (F80).
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
