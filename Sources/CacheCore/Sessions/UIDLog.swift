import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// A log for lines that a uid can cause at any rate. Writes at most ``maximumLines`` lines a minute for each account.
public final class UIDLog: Sendable {
    private let log: Logger
    private let accountOf: @Sendable (UInt32) -> UInt32
    private let limit = NIOLockedValueBox(LineLimit<UInt32>(most: maximumLines))

    static var maximumLines: Int { 20 }

    public init(_ log: Logger, accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }) {
        self.log = log
        self.accountOf = accountOf
    }

    /// - Parameter now: seconds of any clock.
    public func write(_ message: Logger.Message, uid: UInt32, _ metadata: Logger.Metadata, at now: Int64) {
        let (isWritten, unwritten) = limit.withLockedValue { $0.count(accountOf(uid), at: now) }
        for (account, count) in unwritten {
            log.notice("log messages suppressed", metadata: ["uid": "\(account)", "count": "\(count)"])
        }
        if isWritten { log.info(message, metadata: metadata.merging(["uid": "\(uid)"]) { $1 }) }
    }
}
