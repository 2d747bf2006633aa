import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

// Which hosts may be asked, as the desk keeps it: the thread asks before each request and tells what came of it.

extension DownloadDesk {
    /// Whether a request may go to the host now. Whoever may has to call ``learn(_:of:from:patience:at:)`` once.
    func ask(_ host: HostKey, at now: NIODeadline) throws(HostHealth.Refusal) -> HostHealth.Permit {
        let result: Result<HostHealth.Permit, HostHealth.Refusal> = state.withLockedValue { state in
            do throws(HostHealth.Refusal) {
                return .success(try state.hosts.ask(host, at: now))
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// What a request showed of its host. When that is why the host is left alone from now on, the downloads that wait for it
    /// leave the queue: they would only wait for a place in order to fail.
    func learn(
        _ verdict: HostHealth.Verdict, of host: HostKey, from permit: HostHealth.Permit, patience: OriginPatience,
        at now: NIODeadline
    ) {
        state.withLockedValue { state in
            let isLeftAlone = state.hosts.learn(
                verdict, of: host, from: permit, at: now, rules: HostHealth.Rules(patience),
                draw: state.configuration.draw)
            if isLeftAlone, let why = state.hosts.refusal(of: host, at: now) { state.holdBack(host, why) }
        }
    }

    /// Gives back the room of a download that had begun when its host was found to be left alone. Nothing was sent for it.
    func holdBack(_ ticket: DownloadTicket, _ cost: Cost) {
        state.withLockedValue { state in
            state.statistics.count(cost, of: ticket.entry.origin)
            if !ticket.isCancelled { state.statistics.countHeldBack(of: ticket.entry.origin) }
            state.finish(ticket)
        }
    }

    func statistics(at now: NIODeadline) -> FetcherStatistics {
        state.withLockedValue { state in
            var statistics = state.statistics
            statistics.inFlight = state.queue.active
            statistics.queued = state.queue.waiting
            for (origin, all) in state.hosts.leftAlone(at: now) {
                statistics.hostsLeftAlone += all.hosts
                statistics.origins[origin, default: .init()].retryIn = all.milliseconds
            }
            return statistics
        }
    }
}

extension DownloadDesk.State {
    /// Takes what waits for a host out of the queue. Looks at every download that waits; once for each time that a host is left alone.
    fileprivate mutating func holdBack(_ host: HostKey, _ why: HostHealth.Refusal) {
        let tickets = waiting.values.filter { $0.host == host && queue.remove($0.entry) }
        for ticket in tickets.sorted(by: { $0.entry.id < $1.entry.id }) {
            waiting[ticket.entry.id] = nil
            statistics.countHeldBack(of: host.origin)
            heldBack.append((ticket, why))
        }
        if !tickets.isEmpty { call() }
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
    static func heldBack(_ authority: String, _ why: HostHealth.Refusal) -> Self {
        .origin(why.sentence(about: authority))
    }
}

extension HostHealth.Refusal {
    func sentence(about authority: String) -> String {
        switch self {
        case .leftAlone(let milliseconds):
            "\(authority) failed and is left alone for \(milliseconds) ms more: try again then"
        case .probed:
            "\(authority) failed, and one request is finding out whether it is back: try again when that has ended"
        }
    }
}
