import Logging
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

// Which hosts may be asked, as the scheduler keeps it: the thread asks before each request and tells what came of it.

extension DownloadScheduler {
    /// Whether a request of the uid may go to the host now. Whoever may has to call ``learn(_:of:for:from:policy:at:)`` once; see ``HostPermit``.
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

    /// Why a request of the uid to the host would not be sent now; nil when it would.
    func rejection(of host: HostKey, for uid: UInt32, at now: NIODeadline) -> CircuitBreaker.Rejection? {
        state.withLockedValue { $0.breakers.rejection(of: host, for: uid, at: now) }
    }

    /// A request has a connection, whatever comes of it.
    func connected(
        _ host: HostKey, for uid: UInt32, with permit: inout CircuitBreakers.Permit, at now: NIODeadline
    ) {
        let (changes, permitNow) = state.withLockedValue { [permit] state in
            var permit = permit
            return (state.breakers.connected(host, for: uid, with: &permit), permit)
        }
        permit = permitNow
        for change in changes { tell(change, nil, of: host, for: uid, at: now) }
    }

    /// What a request showed of its host. When that opens a breaker, the downloads behind it leave the queue: they would only wait for a
    /// place in order to fail.
    func learn(
        _ finding: CircuitBreakers.Finding, of host: HostKey, for uid: UInt32, from permit: CircuitBreakers.Permit,
        policy: BreakerPolicy, at now: NIODeadline
    ) -> [OpenedBreaker] {
        let changes = state.withLockedValue { state in
            let changes = state.breakers.learn(
                finding, of: host, for: uid, from: permit, at: now, rules: CircuitBreaker.Rules(policy),
                draw: state.configuration.draw)
            return changes.map { change in
                guard case .opened(let scope) = change,
                    let why = state.breakers.rejection(of: host, for: uid, at: now)
                else { return (change, OpenedBreaker?.none) }
                state.reject(host, of: scope, why)
                return (change, OpenedBreaker(host: host, scope: scope, why: why))
            }
        }
        for (change, opened) in changes { tell(change, opened?.why, of: host, for: uid, at: now) }
        return changes.compactMap(\.1)
    }

    /// The origin is named, and not the host: that may be where a redirect led, and say of whom it has pictures.
    private func tell(
        _ change: CircuitBreakers.Change, _ why: CircuitBreaker.Rejection?, of host: HostKey, for uid: UInt32,
        at now: NIODeadline
    ) {
        let seconds = Int64(clamping: now.uptimeNanoseconds / 1_000_000_000)
        switch change {
        case .opened(let scope):
            uidLog.write(
                "a circuit breaker opened", uid: uid,
                ["origin": "\(host.origin)", "for": "\(scope.name)", "ms": "\(why?.milliseconds ?? 0)"], at: seconds)
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
    /// Takes what waits for a host out of the queue. Looks at what waits for its origin, of the uid alone where it is about one.
    fileprivate mutating func reject(
        _ host: HostKey, of scope: CircuitBreakers.Scope, _ why: CircuitBreaker.Rejection
    ) {
        let entries = queue.waiting(for: host.origin, of: scope.uid)
        let tickets = entries.compactMap { waiting[$0.id] }.filter { $0.host == host && queue.remove($0.entry) }
        for ticket in tickets.sorted(by: { $0.entry.id < $1.entry.id }) {
            waiting[ticket.entry.id] = nil
            statistics.countRejected(of: host.origin)
            rejected.append((ticket, why))
        }
        if !tickets.isEmpty { call() }
    }
}

extension CircuitBreakers.Scope {
    /// As the log has it.
    fileprivate var name: String {
        switch self {
        case .everyone: "everyone"
        case .uid: "this uid"
        }
    }

    /// The one uid that it is about.
    var uid: UInt32? {
        switch self {
        case .everyone: nil
        case .uid(let uid): uid
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
