import CCurl
import NIOCore
import ThumbnailCache

/// The token requests on the fetcher's thread: those that wait, and those that libcurl has.
///
/// They have connections of their own beside those of the downloads, so that neither waits for the other. Few at once are
/// enough, and of one origin only some of these, so that an endpoint that does not answer holds up no other: see ``TokenQueue``.
///
/// Only the fetcher's thread touches it.
final class TokenScheduler {
    static let mostAtOnce = 32
    static let mostAtOncePerOrigin = 8

    /// A request that waits or is under way.
    private struct Request {
        let ticket: TokenTicket
        let entry: TokenQueue.Entry
        let url: WebURL
        /// Nil while it waits.
        var transfer: TokenTransfer?
    }

    private let scheduler: TokenInbox
    /// Knows which hosts may be asked.
    private let hosts: DownloadScheduler
    private let lookups: NameLookups
    private let multi: UnsafeMutableRawPointer
    private var queue = TokenQueue(most: mostAtOnce, mostPerOrigin: mostAtOncePerOrigin)
    /// By their tickets' ids.
    private var requests: [UInt64: Request] = [:]
    /// Which of them libcurl has with which handle.
    private var handles: [UnsafeMutableRawPointer: UInt64] = [:]

    init(scheduler: TokenInbox, hosts: DownloadScheduler, lookups: NameLookups, multi: UnsafeMutableRawPointer) {
        self.scheduler = scheduler
        self.hosts = hosts
        self.lookups = lookups
        self.multi = multi
    }

    /// When the first of those that wait has waited long enough; those under way are libcurl's to watch.
    var nextDeadline: NIODeadline? { queue.nextDeadline }

    /// Begins what may, and lets go of what is not wanted any more.
    func takeUp(_ configuration: FetcherConfiguration, at now: NIODeadline) {
        let work = scheduler.takeWork()
        for ticket in work.new { add(ticket) }
        for ticket in work.cancelled { drop(ticket) }
        for entry in queue.expire(at: now) {
            let sentence = "waited \(entry.timeout) ms behind other token requests and could not begin"
            end(entry.id, .failure(.timedOut(sentence)))
        }
        while let next = queue.next() { begin(next, configuration) }
    }

    /// Ends what libcurl has done with; false when the handle is none of a token request.
    func end(_ easy: UnsafeMutableRawPointer, _ code: CURLcode) -> Bool {
        guard let id = handles[easy], let transfer = requests[id]?.transfer else { return false }
        curl_multi_remove_handle(multi, easy)
        report(transfer, transfer.finding(code))
        end(id, transfer.conclude(code))
        return true
    }

    /// Ends those that wait for a host whose breaker has opened: they would only wait for a place in order to fail.
    func reject(behind opened: [OpenedBreaker]) {
        for breaker in opened { reject(breaker.host, of: breaker.scope.uid, breaker.why) }
    }

    /// Ends everything: the fetcher is stopping.
    func endAll() {
        let new = scheduler.close()
        for easy in handles.keys { curl_multi_remove_handle(multi, easy) }
        for id in requests.keys.sorted() { end(id, .failure(.shuttingDown)) }
        for ticket in new { end(ticket, .failure(.shuttingDown)) }
        queue = TokenQueue(most: Self.mostAtOnce, mostPerOrigin: Self.mostAtOncePerOrigin)
    }

    private func add(_ ticket: TokenTicket) {
        let request = ticket.request
        do {
            let url = try WebURL(request.endpoint.url)
            let host = HostKey(origin: request.origin.name, authority: url.authority)
            let entry = TokenQueue.Entry(
                id: ticket.id, uid: request.uid, host: host, timeout: request.origin.timeout, deadline: ticket.deadline)
            requests[ticket.id] = Request(ticket: ticket, entry: entry, url: url)
            queue.add(entry)
        } catch {
            end(ticket, .failure(.origin("the token endpoint's URL is none: \(error.sentence)")))
        }
    }

    private func begin(_ entry: TokenQueue.Entry, _ configuration: FetcherConfiguration) {
        guard let request = requests[entry.id] else { return queue.finish(entry) }
        let now = NIODeadline.now()
        let permit: HostPermit
        do throws(CircuitBreaker.Rejection) {
            permit = try HostPermit(
                for: entry.host, of: entry.uid, policy: request.ticket.request.origin.breaker, from: hosts, at: now)
        } catch {
            queue.finish(entry)
            end(entry.id, .failure(.rejected(entry.host.authority, error)))
            // What waits behind it would meet the same.
            return reject(entry.host, of: entry.uid, error)
        }
        do throws(TokenFailure) {
            let transfer = try TokenTransfer(request.ticket, to: request.url, configuration, lookups)
            transfer.permit = permit
            requests[entry.id]?.transfer = transfer
            handles[transfer.easy.raw] = entry.id
            let code = curl_multi_add_handle(multi, transfer.easy.raw)
            guard code == CURLM_OK else { throw .origin("libcurl: \(String(cString: curl_multi_strerror(code)))") }
        } catch {
            reject(behind: permit.end(.nothing, at: now))
            if requests[entry.id]?.transfer == nil { queue.finish(entry) }
            end(entry.id, .failure(error))
        }
    }

    /// Tells what a request showed of the endpoint's host; once for each permit.
    private func report(_ transfer: TokenTransfer, _ finding: CircuitBreakers.Finding) {
        if let permit = transfer.permit.take() { reject(behind: permit.end(finding, at: .now())) }
    }

    private func reject(_ host: HostKey, of uid: UInt32?, _ why: CircuitBreaker.Rejection) {
        for entry in queue.removeAll(for: host, of: uid) {
            end(entry.id, .failure(.rejected(host.authority, why)))
        }
    }

    private func drop(_ ticket: TokenTicket) {
        guard let request = requests[ticket.id] else { return }
        if let transfer = request.transfer {
            // The handle goes with the transfer, and must be out of libcurl's hands by then.
            curl_multi_remove_handle(multi, transfer.easy.raw)
            report(transfer, .nothing)
        } else {
            _ = queue.remove(request.entry)
        }
        forget(request)
        scheduler.finish(ticket)
    }

    private func end(_ id: UInt64, _ outcome: Result<TokenGrant, TokenFailure>) {
        guard let request = requests[id] else { return }
        forget(request)
        end(request.ticket, outcome)
    }

    private func end(_ ticket: TokenTicket, _ outcome: Result<TokenGrant, TokenFailure>) {
        scheduler.finish(ticket)
        ticket.end(outcome)
    }

    /// Gives back the place of one under way; what waits is out of the queue already.
    private func forget(_ request: Request) {
        requests[request.ticket.id] = nil
        guard let transfer = request.transfer else { return }
        handles[transfer.easy.raw] = nil
        queue.finish(request.entry)
    }
}

extension TokenFailure {
    /// A request that is not sent, because its host has failed.
    static func rejected(_ authority: String, _ why: CircuitBreaker.Rejection) -> Self {
        .notAsked(why.sentence(about: authority))
    }
}
