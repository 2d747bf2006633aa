import Logging
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

// Which hosts may be asked, as the scheduler keeps it: the thread asks before each request and tells what came of it.

extension DownloadScheduler {
    /// Whether a request of the uid may go to the host now. Whoever may has to call ``learn(_:of:for:from:policy:at:)`` once.
    func ask(
        _ host: HostKey, for uid: UInt32, at now: NIODeadline
    ) throws(CircuitBreaker.Rejection) -> CircuitBreakers.Permit {
        let result: Result<CircuitBreakers.Permit, CircuitBreaker.Rejection> = state.withLockedValue { state in
            do throws(CircuitBreaker.Rejection) {
                return .success(try state.breakers.ask(host, for: uid, at: now))
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// What a request showed of its host. When that opens a breaker, the downloads behind it leave the queue: they would only wait for a
    /// place in order to fail.
    func learn(
        _ finding: CircuitBreakers.Finding, of host: HostKey, for uid: UInt32, from permit: CircuitBreakers.Permit,
        policy: BreakerPolicy, at now: NIODeadline
    ) {
        let change: BreakerChange? = state.withLockedValue { state in
            let scope = state.breakers.learn(
                finding, of: host, for: uid, from: permit, at: now, rules: CircuitBreaker.Rules(policy),
                draw: state.configuration.draw)
            guard let scope else { return permit.isClosed(by: finding, of: uid).map { .closed($0) } }
            guard let why = state.breakers.rejection(of: host, for: uid, at: now) else { return nil }
            state.reject(host, of: scope, why)
            return .opened(scope, why)
        }
        if let change { tell(change, of: host, for: uid, at: now) }
    }

    /// The origin is named, and not the host: that may be where a redirect led, and say of whom it has pictures.
    private func tell(_ change: BreakerChange, of host: HostKey, for uid: UInt32, at now: NIODeadline) {
        let seconds = Int64(clamping: now.uptimeNanoseconds / 1_000_000_000)
        switch change {
        case .opened(let scope, let why):
            uidLog.write(
                "a circuit breaker opened", uid: uid,
                ["origin": "\(host.origin)", "for": "\(scope.name)", "ms": "\(why.milliseconds)"], at: seconds)
        case .closed(let scope):
            uidLog.write(
                "a circuit breaker closed", uid: uid, ["origin": "\(host.origin)", "for": "\(scope.name)"], at: seconds)
        }
    }

    /// Gives back the room of a download that had begun when a breaker was found open. Nothing was sent for it.
    func reject(_ ticket: DownloadTicket, _ cost: Cost) {
        state.withLockedValue { state in
            state.statistics.count(cost, of: ticket.entry.origin)
            if !ticket.isCancelled { state.statistics.countRejected(of: ticket.entry.origin) }
            state.finish(ticket)
        }
    }

    func statistics(at now: NIODeadline) -> FetcherStatistics {
        state.withLockedValue { state in
            var statistics = state.statistics
            statistics.inFlight = state.queue.active
            statistics.queued = state.queue.waiting
            for (origin, open) in state.breakers.open(at: now) {
                statistics.hostsOpen += open.hosts
                statistics.uidsOpen += open.own
                statistics.origins[origin, default: .init()].retryIn = open.milliseconds
                statistics.origins[origin, default: .init()].longestRetryIn = open.longest
            }
            return statistics
        }
    }
}

extension DownloadScheduler.State {
    /// Takes what waits for a host out of the queue. Looks at every download that waits; once for each time that a breaker opens.
    fileprivate mutating func reject(
        _ host: HostKey, of scope: CircuitBreakers.Scope, _ why: CircuitBreaker.Rejection
    ) {
        let tickets = waiting.values.filter {
            $0.host == host && scope.contains($0.entry.uid) && queue.remove($0.entry)
        }
        for ticket in tickets.sorted(by: { $0.entry.id < $1.entry.id }) {
            waiting[ticket.entry.id] = nil
            statistics.countRejected(of: host.origin)
            rejected.append((ticket, why))
        }
        if !tickets.isEmpty { call() }
    }
}

/// What a finding did to a breaker.
private enum BreakerChange {
    case opened(CircuitBreakers.Scope, CircuitBreaker.Rejection)
    case closed(CircuitBreakers.Scope)
}

extension CircuitBreakers.Scope {
    /// As the log has it.
    fileprivate var name: String {
        switch self {
        case .everyone: "everyone"
        case .uid: "this uid"
        }
    }

    fileprivate func contains(_ uid: UInt32) -> Bool {
        switch self {
        case .everyone: true
        case .uid(let one): one == uid
        }
    }
}

extension HostKey {
    /// Where a download's first request goes.
    init(_ download: Download) {
        self.init(origin: download.origin.name, authority: WebURL.authority(ofNormalized: download.target.url))
    }
}

extension DownloadFailure {
    /// A request that is not sent, because its host has failed.
    static func rejected(_ authority: String, _ why: CircuitBreaker.Rejection) -> Self {
        .origin(why.sentence(about: authority))
    }
}

extension CircuitBreaker.Rejection {
    func sentence(about authority: String) -> String {
        switch self {
        case .open(let milliseconds):
            "\(authority) failed and is not asked for \(milliseconds) ms more: try again then"
        case .probed:
            "\(authority) failed, and one request is finding out whether it is back: try again when that has ended"
        }
    }
}
