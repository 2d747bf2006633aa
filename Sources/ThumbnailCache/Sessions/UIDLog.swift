import Logging
import NIOConcurrencyHelpers

/// Lines of the log that a uid can bring about as often as it likes. Beyond ``most`` in ``period`` the lines of its
/// account are only counted, and the count is told with the first line after that, whosever it is.
public final class UIDLog: Sendable {
    private struct State {
        /// When the period began, in seconds.
        var begin: Int64 = 0
        /// Of each account in the period, whether they were written or not.
        var lines: [UInt32: Int] = [:]
    }

    /// Lines of one account.
    static var most: Int { 20 }
    /// Seconds.
    static var period: Int64 { 60 }

    private let log: Logger
    private let accountOf: @Sendable (UInt32) -> UInt32
    private let state = NIOLockedValueBox(State())

    /// - Parameter accountOf: the account that a uid's lines count for.
    public init(_ log: Logger, accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }) {
        self.log = log
        self.accountOf = accountOf
    }

    /// Writes a line of level `info`.
    /// - Parameter now: seconds, by any clock.
    public func write(_ what: Logger.Message, uid: UInt32, _ metadata: Logger.Metadata, at now: Int64) {
        let account = accountOf(uid)
        let (isWritten, unwritten) = state.withLockedValue { state in
            var unwritten: [UInt32: Int] = [:]
            if abs(now - state.begin) >= Self.period {
                unwritten = state.lines.compactMapValues { $0 > Self.most ? $0 - Self.most : nil }
                state = State(begin: now)
            }
            let count = state.lines[account, default: 0] + 1
            state.lines[account] = count
            return (count <= Self.most, unwritten)
        }
        for (account, count) in unwritten {
            log.notice("more of this than was written", metadata: ["uid": "\(account)", "unwritten": "\(count)"])
        }
        if isWritten { log.info(what, metadata: metadata.merging(["uid": "\(uid)"]) { $1 }) }
    }
}
