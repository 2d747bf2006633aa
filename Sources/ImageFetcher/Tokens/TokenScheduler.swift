import CCurl
import DequeModule
import NIOCore
import ThumbnailCache

/// The token requests on the fetcher's thread: those that wait, and those that libcurl has.
///
/// They have connections of their own beside those of the downloads, so that neither waits for the other. Few at once are
/// enough, and of one origin only some of these, so that an endpoint that does not answer holds up no other; where several do not and
/// hold all places, the next place that is free goes to the origin that has the fewest under way. Among those of the same, the uid that has
/// the fewest is next, so that one uid with many users keeps nobody else waiting (I8); the last places are for uids that have none.
///
/// Only the fetcher's thread touches it.
final class TokenScheduler {
    static let mostAtOnce = 32
    static let mostAtOncePerOrigin = 8

    private let scheduler: TokenInbox
    /// Knows which hosts may be asked.
    private let hosts: DownloadScheduler
    private let multi: UnsafeMutableRawPointer
    private var waiting: Deque<TokenTicket> = []
    private var transfers: [UnsafeMutableRawPointer: TokenTransfer] = [:]

    init(scheduler: TokenInbox, hosts: DownloadScheduler, multi: UnsafeMutableRawPointer) {
        self.scheduler = scheduler
        self.hosts = hosts
        self.multi = multi
    }

    /// When the first of those that wait has waited long enough; those under way are libcurl's to watch.
    var nextDeadline: NIODeadline? { waiting.map(\.deadline).min() }

    /// Begins what may, and lets go of what is not wanted any more.
    func takeUp(_ configuration: FetcherConfiguration, at now: NIODeadline) {
        let work = scheduler.takeWork()
        waiting += work.new
        for ticket in work.cancelled { drop(ticket) }
        let late = waiting.filter { $0.deadline <= now }
        waiting.removeAll { $0.deadline <= now }
        for ticket in late {
            let limit = ticket.request.origin.timeout
            end(ticket, .failure(.timedOut("waited \(limit) ms behind other token requests and could not begin")))
        }
        while let next = Self.next(
            of: waiting.lazy.map(\.request), besides: transfers.values.lazy.map(\.ticket.request))
        {
            begin(waiting.remove(at: next), configuration)
        }
    }

    /// Ends what libcurl has done with; false when the handle is none of a token request.
    func end(_ easy: UnsafeMutableRawPointer, _ code: CURLcode) -> Bool {
        guard let transfer = transfers.removeValue(forKey: easy) else { return false }
        curl_multi_remove_handle(multi, transfer.easy.raw)
        report(transfer, transfer.finding(code))
        end(transfer.ticket, transfer.conclude(code))
        return true
    }

    /// Ends everything: the fetcher is stopping.
    func endAll() {
        let new = scheduler.close()
        for (easy, _) in transfers { curl_multi_remove_handle(multi, easy) }
        for ticket in transfers.values.map(\.ticket) + waiting + new { end(ticket, .failure(.shuttingDown)) }
        transfers = [:]
        waiting = []
    }

    /// Which of those that wait is next; nil when none may begin. Looks at each of them.
    static func next(
        of waiting: some Sequence<TokenRequest>, besides underWay: some Sequence<TokenRequest>
    ) -> Int? {
        var all = ActiveTransfers()
        var perOrigin: [String: ActiveTransfers] = [:]
        for request in underWay {
            all.begin(of: request.uid)
            perOrigin[request.origin.name, default: .init()].begin(of: request.uid)
        }
        var best: (offset: Int, rank: (Int, Int))?
        for (offset, request) in waiting.enumerated() {
            let ofOrigin = perOrigin[request.origin.name, default: .init()]
            guard all.hasRoom(for: request.uid, of: mostAtOnce),
                ofOrigin.hasRoom(for: request.uid, of: mostAtOncePerOrigin)
            else { continue }
            let rank = (ofOrigin.count, all.count(of: request.uid))
            guard rank < best?.rank ?? (.max, .max) else { continue }
            best = (offset, rank)
        }
        return best?.offset
    }

    private func begin(_ ticket: TokenTicket, _ configuration: FetcherConfiguration) {
        let transfer: TokenTransfer
        do throws(TokenFailure) {
            transfer = try TokenTransfer(ticket, configuration)
        } catch {
            return end(ticket, .failure(error))
        }
        do throws(CircuitBreaker.Rejection) {
            transfer.permit = try hosts.ask(transfer.host, for: ticket.request.uid, at: .now())
        } catch {
            return end(ticket, .failure(.notAsked(error.sentence(about: transfer.host.authority))))
        }
        let code = curl_multi_add_handle(multi, transfer.easy.raw)
        guard code == CURLM_OK else {
            report(transfer, .nothing)
            return end(ticket, .failure(.origin("libcurl: \(String(cString: curl_multi_strerror(code)))")))
        }
        transfers[transfer.easy.raw] = transfer
    }

    /// Tells what a request showed of the endpoint's host; once for each permit.
    private func report(_ transfer: TokenTransfer, _ finding: CircuitBreakers.Finding) {
        guard let permit = transfer.permit.take() else { return }
        let request = transfer.ticket.request
        hosts.learn(
            finding, of: transfer.host, for: request.uid, from: permit, policy: request.origin.breaker, at: .now())
    }

    private func drop(_ ticket: TokenTicket) {
        if let (easy, transfer) = transfers.first(where: { $0.value.ticket === ticket }) {
            // The handle goes with the transfer, and must be out of libcurl's hands by then.
            curl_multi_remove_handle(multi, transfer.easy.raw)
            transfers[easy] = nil
            report(transfer, .nothing)
            scheduler.finish(ticket)
        } else if let index = waiting.firstIndex(where: { $0 === ticket }) {
            waiting.remove(at: index)
            scheduler.finish(ticket)
        }
    }

    private func end(_ ticket: TokenTicket, _ outcome: Result<TokenGrant, TokenFailure>) {
        scheduler.finish(ticket)
        ticket.end(outcome)
    }
}
