import CCurl
import Glibc
import Logging
import NIOCore
import ThumbnailCache

/// The fetcher's thread: takes work from the scheduler, hands it to libcurl, and tells how it ended.
///
/// Nothing of it is ever seen by another thread, and nobody is told anything while a lock is held.
final class DownloadLoop {
    private let scheduler: DownloadScheduler
    private let rulesCache: OriginRulesCache
    private let log: Logger
    private let multi: UnsafeMutableRawPointer
    private let connections = ConnectionTable()
    private let pools = ConnectionPools()
    private let lookups: NameLookups
    /// Token requests, which go their own way over the same multi handle.
    private let tokens: TokenScheduler
    private var transfers: [UInt64: Transfer] = [:]
    /// Milliseconds to sleep when nothing is known that would have to be done. Being woken up is not left to chance;
    /// this is only so that a mistake would show as a delay and not as a standstill.
    private static let longestSleep: Int64 = 60_000
    /// The same while something may come over HTTP/2. libcurl 7.88 at times reads what belongs to one transfer on behalf of another and
    /// tells neither; the one then stands still until one of its timers goes off, two seconds later, or until libcurl is
    /// called for whatever reason. (Seen with nginx in about one of fifteen runs of 500 downloads; with this, in none.)
    private static let longestSleepOverTLS: Int64 = 20

    /// Takes over the multi handle.
    init(
        scheduler: DownloadScheduler, tokens: TokenInbox, lookups: NameLookups, rulesCache: OriginRulesCache,
        multi: UnsafeMutableRawPointer,
        log: Logger
    ) {
        self.scheduler = scheduler
        self.lookups = lookups
        self.tokens = TokenScheduler(scheduler: tokens, hosts: scheduler, lookups: lookups, multi: multi)
        self.rulesCache = rulesCache
        self.multi = multi
        self.log = log
    }

    deinit {
        curl_multi_cleanup(multi)
        pools.close()
    }

    func run() {
        while let work = scheduler.takeWork(at: .now()) {
            setLimits(work.configuration)
            for ticket in work.expired { giveUp(ticket) }
            for (ticket, why) in work.rejected { ticket.end(.failed(.rejected(ticket.host.authority, why))) }
            for ticket in work.begin { begin(ticket, work.configuration) }
            for ticket in work.cancelled { drop(ticket) }
            tokens.takeUp(work.configuration, at: .now())
            perform()
            endFinished()
            for sign in work.signs { sign() }
            guard scheduler.maySleep() else { continue }
            sleep(until: [work.nextDeadline, tokens.nextDeadline].compactMap { $0 }.min())
        }
        endAll()
    }

    // MARK: One download

    private func begin(_ ticket: DownloadTicket, _ configuration: FetcherConfiguration) {
        guard !ticket.isCancelled else { return scheduler.finish(ticket, nil, .init()) }
        do throws(DownloadFailure) {
            let transfer = try Transfer(
                ticket: ticket, connections: connections, lookups: lookups, rulesCache: rulesCache,
                configuration: configuration)
            transfers[ticket.entry.id] = transfer
            send(transfer)
        } catch {
            end(ticket, .failed(error), .init())
        }
    }

    /// Hands the current hop of a download to libcurl.
    private func send(_ transfer: Transfer) {
        do throws(CircuitBreaker.Rejection) {
            if transfer.permit == nil {
                transfer.permit = try HostPermit(
                    for: transfer.host, of: transfer.ticket.entry.uid, policy: transfer.origin.breaker, from: scheduler,
                    at: .now())
            }
        } catch {
            return reject(transfer, error)
        }
        do throws(DownloadFailure) {
            try transfer.prepare(at: .now())
            try attach(transfer)
        } catch {
            return end(transfer, .failed(error))
        }
        let code = curl_multi_add_handle(multi, transfer.easy.raw)
        guard code == CURLM_OK else {
            return end(transfer, .failed(.origin("libcurl: \(String(cString: curl_multi_strerror(code)))")))
        }
    }

    private func attach(_ transfer: Transfer) throws(DownloadFailure) {
        do {
            try pools.attach(transfer.easy, to: transfer.origin)
        } catch {
            throw .origin("libcurl: \(error.reason)")
        }
    }

    /// Ends a download whose next request would go to a host that may not be asked now.
    private func reject(_ transfer: Transfer, _ why: CircuitBreaker.Rejection) {
        transfers[transfer.ticket.entry.id] = nil
        scheduler.reject(transfer.ticket, cost(transfer))
        transfer.ticket.end(.failed(.rejected(transfer.url.authority, why)))
    }

    /// Tells what a request showed of its host; once for each permit.
    private func report(_ transfer: Transfer, _ finding: CircuitBreakers.Finding) {
        if let permit = transfer.permit.take() { tokens.reject(behind: permit.end(finding, at: .now())) }
    }

    /// Lets go of a cancelled download. It has begun, or has just been passed over by ``begin(_:_:)``.
    private func drop(_ ticket: DownloadTicket) {
        guard let transfer = transfers.removeValue(forKey: ticket.entry.id) else { return }
        curl_multi_remove_handle(multi, transfer.easy.raw)
        report(transfer, .nothing)
        scheduler.finish(ticket, nil, cost(transfer))
    }

    /// Ends a download whose time was up before it could begin; the scheduler has counted it.
    private func giveUp(_ ticket: DownloadTicket) {
        ticket.end(
            .failed(.timedOut("waited \(ticket.download.origin.timeout) ms behind other downloads and could not begin"))
        )
    }

    private func end(_ transfer: Transfer, _ outcome: DownloadOutcome) {
        transfers[transfer.ticket.entry.id] = nil
        report(transfer, .nothing)
        end(transfer.ticket, outcome, cost(transfer))
    }

    private func end(_ ticket: DownloadTicket, _ outcome: DownloadOutcome, _ cost: DownloadScheduler.Cost) {
        if case .failed(let failure) = outcome {
            log.debug("download failed", metadata: ["origin": "\(ticket.entry.origin)", "why": "\(failure)"])
        }
        scheduler.finish(ticket, outcome, cost)
        ticket.end(outcome)
    }

    private func cost(_ transfer: Transfer) -> DownloadScheduler.Cost {
        DownloadScheduler.Cost(
            requests: transfer.requests + transfer.sent, bytes: transfer.bytes,
            refusedAddresses: transfer.refusedAddresses, answers: transfer.answers)
    }

    // MARK: libcurl

    private func setLimits(_ configuration: FetcherConfiguration) {
        lookups.limits = configuration.lookupLimits
        ccurl_multi_set_long(multi, CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX))
        if let origins = configuration.origins { pools.prune(keeping: origins) }
        // libcurl counts by pool, whatever the names say. How many requests there are at once is the queue's to limit; this is about the
        // connections that are kept when they have ended: idle ones are closed, the oldest first.
        ccurl_multi_set_long(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, configuration.downloads + TokenScheduler.mostAtOnce)
        ccurl_multi_set_long(multi, CURLMOPT_MAXCONNECTS, configuration.idleConnections(pools: pools.count))
    }

    private func perform() {
        var running: Int32 = 0
        let code = curl_multi_perform(multi, &running)
        if code != CURLM_OK { pause(after: code) }
    }

    private func endFinished() {
        var left: Int32 = 0
        while let message = curl_multi_info_read(multi, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
            // The message is gone once the handle is removed.
            let code = ccurl_message_result(message)
            if tokens.end(easy, code) { continue }
            var context: UnsafeMutableRawPointer?
            ccurl_easy_get_pointer(easy, CURLINFO_PRIVATE, &context)
            curl_multi_remove_handle(multi, easy)
            guard let context else { continue }
            let transfer = Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
            if let finding = transfer.finding(code) { report(transfer, finding) }
            if let outcome = transfer.conclude(code) {
                end(transfer, outcome)
            } else {
                send(transfer)
            }
        }
    }

    private func sleep(until deadline: NIODeadline?) {
        // Rounded up, so as not to wake just before the time.
        let left = deadline.map { max(0, ($0 - .now()).nanoseconds / 1_000_000 + 1) } ?? Self.longestSleep
        let isOverTLS = transfers.values.contains { $0.url.scheme == .https }
        let longest = isOverTLS ? Self.longestSleepOverTLS : Self.longestSleep
        let code = curl_multi_poll(multi, nil, 0, Int32(min(left, longest)), nil)
        if code != CURLM_OK { pause(after: code) }
    }

    /// libcurl could not do its work, for want of memory or descriptors: not to be tried again without a breath.
    private func pause(after code: CURLMcode) {
        log.error("libcurl failed", metadata: ["why": "\(String(cString: curl_multi_strerror(code)))"])
        usleep(10_000)
    }

    private func endAll() {
        let rest = scheduler.close()
        let begun = transfers.values.sorted { $0.ticket.entry.id < $1.ticket.entry.id }
        for transfer in begun {
            curl_multi_remove_handle(multi, transfer.easy.raw)
            end(transfer, .failed(.shuttingDown))
        }
        for ticket in rest { ticket.end(.failed(.shuttingDown)) }
        tokens.endAll()
    }
}
