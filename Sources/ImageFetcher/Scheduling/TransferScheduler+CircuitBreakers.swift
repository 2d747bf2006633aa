import CacheCore
import HelperProtocol
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// The circuit breakers. The fetcher's thread acquires a permit before each request and reports its outcome.
extension TransferScheduler {
    /// Acquires a permit. The end of the request must be reported with ``record(_:of:for:from:policy:at:)``.
    func acquirePermit(
        for host: HostKey, account: UInt32, at now: NIODeadline
    ) throws(CircuitBreaker.Rejection) -> CircuitBreakers.Permit {
        try state.withLockedValue { state in
            Result { () throws(CircuitBreaker.Rejection) in
                try state.breakers.acquirePermit(for: host, account: account, at: now)
            }
        }.get()
    }

    /// Records that the probe for all accounts has a connection. Returns the permit to use from now on.
    func connected(
        _ host: HostKey, for account: UInt32, with permit: CircuitBreakers.Permit, at now: NIODeadline
    ) -> CircuitBreakers.Permit {
        let (changes, permit) = state.withLockedValue { state in
            var permit = permit
            return (state.breakers.connected(host, for: account, with: &permit), permit)
        }
        for change in changes { log(change, nil, of: host, for: account, at: now) }
        return permit
    }

    /// Records the finding of a request. If a breaker opens, waiting requests for the host are rejected.
    func record(
        _ finding: CircuitBreakers.Finding, of host: HostKey, for account: UInt32, from permit: CircuitBreakers.Permit,
        policy: BreakerPolicy, at now: NIODeadline
    ) {
        let changes = state.withLockedValue { state in
            let changes = state.breakers.record(
                finding, of: host, for: account, from: permit, at: now, rules: CircuitBreaker.Rules(policy),
                draw: environment.draw)
            return changes.map { change in
                guard case .opened(let scope) = change,
                    let reason = state.breakers.rejection(of: host, for: account, at: now)
                else { return (change, CircuitBreaker.Rejection?.none) }
                state.reject(host, of: scope, reason)
                return (change, reason)
            }
        }
        for (change, reason) in changes { log(change, reason, of: host, for: account, at: now) }
    }

    /// Logs the origin but not the host, which a redirect may have chosen and which shows whose images a user has.
    private func log(
        _ change: CircuitBreakers.Change, _ reason: CircuitBreaker.Rejection?, of host: HostKey, for account: UInt32,
        at now: NIODeadline
    ) {
        let seconds = Int64(clamping: now.uptimeNanoseconds / 1_000_000_000)
        let (message, scope): (Logger.Message, UInt32?) =
            switch change {
            case .opened(let scope): ("circuit breaker opened", scope)
            case .closed(let scope): ("circuit breaker closed", scope)
            }
        var metadata: Logger.Metadata = ["origin": "\(host.origin)", "scope": scope == nil ? "all" : "account"]
        if let reason { metadata["retry_after_ms"] = "\(reason.milliseconds)" }
        accountLog.write(message, account: account, metadata, at: seconds)
    }

    func refusal(of job: TransferJob, at now: NIODeadline) -> FetchRefusal? {
        let host = job.host
        let rejection = state.withLockedValue { $0.breakers.rejection(of: host, for: job.account, at: now) }
        guard let rejection else { return nil }
        return FetchRefusal(
            .rejected(host, rejection), retryIn: rejection == .probed ? nil : rejection.milliseconds)
    }

    func statistics(at now: NIODeadline) -> FetcherStatistics {
        state.withLockedValue { state in
            var statistics = state.statistics
            statistics.inFlight = state.downloads.active
            statistics.queued = state.downloads.waiting
            state.breakers.addFigures(to: &statistics, at: now)
            return statistics
        }
    }
}

extension TransferScheduler.State {
    /// Rejects the requests that wait for a host: those of one account, or of all if `account` is nil.
    fileprivate mutating func reject(_ host: HostKey, of account: UInt32?, _ reason: CircuitBreaker.Rejection) {
        let entries = queues.indices.flatMap { queues[$0].removeAll(for: host, of: account) }
        for handle in entries.compactMap({ waiting.removeValue(forKey: $0.id) }) {
            count(of: handle.job) { $0.count(.failed(.rejected(host, reason))) }
            work.rejected.append((handle, reason))
        }
        if !entries.isEmpty { wakeThread() }
    }
}
