import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// A log for lines that clients can cause at any rate. Writes at most ``maximumLines`` lines a minute for each account.
public final class AccountLog: Sendable {
    private let log: Logger
    private let accountOf: @Sendable (UInt32) -> UInt32
    private let limit = NIOLockedValueBox(LineLimit<UInt32>(most: maximumLines))

    static var maximumLines: Int { 20 }

    public init(_ log: Logger, accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }) {
        self.log = log
        self.accountOf = accountOf
    }

    /// Writes a line with the field `uid`. It counts for the uid's account.
    /// - Parameter now: seconds of any clock.
    public func write(_ message: Logger.Message, uid: UInt32, _ metadata: Logger.Metadata, at now: Int64) {
        if count(accountOf(uid), at: now) { log.info(message, metadata: metadata.merging(["uid": "\(uid)"]) { $1 }) }
    }

    /// Writes a line with the field `account`: for the fetcher, which knows no uids.
    public func write(_ message: Logger.Message, account: UInt32, _ metadata: Logger.Metadata, at now: Int64) {
        if count(account, at: now) {
            log.info(message, metadata: metadata.merging(["account": "\(account)"]) { $1 })
        }
    }

    /// Counts a line. Returns whether it is written.
    private func count(_ account: UInt32, at now: Int64) -> Bool {
        let (isWritten, unwritten) = limit.withLockedValue { $0.count(account, at: now) }
        for (account, count) in unwritten {
            log.notice("log messages suppressed", metadata: ["account": "\(account)", "count": "\(count)"])
        }
        return isWritten
    }
}
