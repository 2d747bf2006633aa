import Logging
import NIOConcurrencyHelpers

/// Says in the log who logs in and out, by uid. One that does so all the time fills no log: beyond ``most`` lines in ``period``
/// its lines are only counted, and the count is told with the first line after that.
final class SessionLog: Sendable {
    private struct State {
        /// When the period began, in seconds.
        var begin: Int64 = 0
        /// Of each uid in the period, whether they were written or not.
        var lines: [UInt32: Int] = [:]
    }

    /// Lines of one uid.
    static var most: Int { 20 }
    /// Seconds.
    static var period: Int64 { 60 }

    private let log: Logger
    private let state = NIOLockedValueBox(State())

    init(_ log: Logger) {
        self.log = log
    }

    /// - Parameters:
    ///   - sessions: that the user has now.
    ///   - now: seconds, by any clock.
    func tell(_ what: Logger.Message, uid: UInt32, sessions: Int, at now: Int64) {
        let (isWritten, unwritten) = state.withLockedValue { state in
            var unwritten: [UInt32: Int] = [:]
            if abs(now - state.begin) >= Self.period {
                unwritten = state.lines.compactMapValues { $0 > Self.most ? $0 - Self.most : nil }
                state = State(begin: now)
            }
            let count = state.lines[uid, default: 0] + 1
            state.lines[uid] = count
            return (count <= Self.most, unwritten)
        }
        for (uid, count) in unwritten {
            log.notice(
                "more log-ins and log-outs than are written here", metadata: ["uid": "\(uid)", "unwritten": "\(count)"])
        }
        if isWritten { log.info(what, metadata: ["uid": "\(uid)", "sessions": "\(sessions)"]) }
    }
}
