import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// Lines of the log that a uid can bring about as often as it likes: ``most`` of its account are written in a minute.
public final class UIDLog: Sendable {
    private let log: Logger
    private let accountOf: @Sendable (UInt32) -> UInt32
    private let limit = NIOLockedValueBox(LineLimit<UInt32>(most: most))

    /// Lines of one account.
    static var most: Int { 20 }

    /// - Parameter accountOf: the account that a uid's lines count for.
    public init(_ log: Logger, accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 }) {
        self.log = log
        self.accountOf = accountOf
    }

    /// Writes a line of level `info`.
    /// - Parameter now: seconds, by any clock.
    public func write(_ what: Logger.Message, uid: UInt32, _ metadata: Logger.Metadata, at now: Int64) {
        let (isWritten, unwritten) = limit.withLockedValue { $0.count(accountOf(uid), at: now) }
        for (account, count) in unwritten {
            log.notice("more of this than was written", metadata: ["uid": "\(account)", "unwritten": "\(count)"])
        }
        if isWritten { log.info(what, metadata: metadata.merging(["uid": "\(uid)"]) { $1 }) }
    }
}
