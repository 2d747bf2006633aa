import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// Starts one kind of helper process, limits how often it is restarted, and logs its failures.
///
/// It holds no connection: the fetcher's client has one, and the renderer's client one for each worker. For each
/// attempt the client calls ``open()``, and then ``started()`` once the helper has replied to the first message, or
/// ``failed(_:)``.
final class HelperSupervisor: Sendable {
    private struct State {
        var backoff = RestartBackoff()
        /// Whether no helper can be started until the daemon is restarted.
        var cannotStart = false
        /// The reason of the failure that was logged last; nil while the helper works.
        var loggedReason: String?
    }

    private let name: String
    private let connector: any HelperConnector
    private let failureLevel: Logger.Level
    private let now: @Sendable () -> Int64
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    init(
        _ name: String, connector: any HelperConnector, failureLevel: Logger.Level, log: Logger,
        now: @escaping @Sendable () -> Int64
    ) {
        (self.name, self.connector, self.failureLevel) = (name, connector, failureLevel)
        (self.log, self.now) = (log, now)
    }

    /// Milliseconds until the next attempt may begin; nil if no helper can be started until the daemon is restarted.
    var retryDelay: Int64? {
        let now = now()
        return state.withLockedValue { $0.cannotStart ? nil : $0.backoff.delay(at: now) }
    }

    /// Opens a non-blocking socket to a helper, and records a failure.
    func open() throws(SystemError) -> CInt {
        do throws(SystemError) {
            return try connector.open()
        } catch {
            record("\(error)", cannotStart: error.code == EPIPE)
            throw error
        }
    }

    /// Records that a helper replied to the first message.
    func started() {
        let now = now()
        let hadFailed = state.withLockedValue { state in
            state.backoff.started(at: now)
            defer { state.loggedReason = nil }
            return state.loggedReason != nil
        }
        if hadFailed { log.notice("helper process started again", metadata: ["helper": "\(name)"]) }
    }

    /// Records that a helper ended, or did not reply to the first message.
    func failed(_ reason: String) { record(reason, cannotStart: false) }

    /// Logs a failure, unless the previous one had the same reason.
    private func record(_ reason: String, cannotStart: Bool) {
        let now = now()
        let (delay, isNew) = state.withLockedValue { state in
            state.backoff.failed(at: now)
            state.cannotStart = state.cannotStart || cannotStart
            defer { state.loggedReason = reason }
            return (state.backoff.delay(at: now), state.loggedReason != reason)
        }
        guard isNew else { return }
        var metadata: Logger.Metadata = ["helper": "\(name)", "reason": "\(reason)"]
        if !cannotStart { metadata["retry_ms"] = "\(delay)" }
        log.log(level: failureLevel, "helper process failed", metadata: metadata)
    }
}
