import CCurl
import Glibc
import Logging
import NIOCore
import ThumbnailCache

/// The fetcher's thread: takes work from the scheduler, hands it to libcurl, and tells how it ended.
///
/// Nothing of it is ever seen by another thread, and nobody is told anything while a lock is held.
final class TransferLoop {
    private let scheduler: TransferScheduler
    private let log: Logger
    private let multi: UnsafeMutableRawPointer
    private let pools = ConnectionPools()
    private var context: TransferContext
    private var transfers: [UInt64: Transfer] = [:]
    /// Milliseconds to sleep when nothing is known that would have to be done. Being woken up is not left to chance;
    /// this is only so that a mistake would show as a delay and not as a standstill.
    private static let longestSleep: Int64 = 60_000
    /// The same while something may come over HTTP/2. libcurl 7.88 at times reads what belongs to one transfer on
    /// behalf of another and tells neither; the one then stands still until one of its timers goes off, two seconds
    /// later, or until libcurl is called for whatever reason. (Seen with nginx in about one of fifteen runs of 500
    /// downloads; with this, in none.)
    private static let longestSleepOverTLS: Int64 = 20

    /// Takes over the multi handle.
    init(
        scheduler: TransferScheduler, rulesCache: OriginRulesCache, multi: UnsafeMutableRawPointer, log: Logger
    ) {
        self.scheduler = scheduler
        let configuration = scheduler.configuration
        context = TransferContext(
            connections: ConnectionTable(), lookups: NameLookups(limits: configuration.lookupLimits),
            rulesCache: rulesCache, configuration: configuration)
        self.multi = multi
        self.log = log
    }

    deinit {
        curl_multi_cleanup(multi)
        pools.close()
    }

    func run() {
        while let next = round() {
            if scheduler.maySleep() { sleep(until: next.deadline) }
        }
        endAll()
    }

    /// Does what there is to do. A function of its own, so that the tickets, which hold tokens, are gone before the thread sleeps.
    /// - Returns: when there is something to do again at the latest; nil when the fetcher is stopping.
    private func round() -> (deadline: NIODeadline?, Void)? {
        guard let work = scheduler.takeWork(at: .now()) else { return nil }
        setLimits(work.configuration)
        for ticket in work.expired { giveUp(ticket) }
        for (ticket, why) in work.rejected { ticket.end(.failed(.rejected(ticket.entry.host.authority, why))) }
        for ticket in work.begin { begin(ticket) }
        for ticket in work.cancelled { drop(ticket) }
        perform()
        endFinished()
        for sign in work.signs { sign() }
        return (work.nextDeadline, ())
    }

    // MARK: One transfer

    private func begin(_ ticket: TransferTicket) {
        guard !ticket.isCancelled else { return scheduler.finish(ticket, nil) }
        do throws(TransferFailure) {
            let transfer: Transfer
            switch ticket.job {
            case .download(let download): transfer = try DownloadTransfer(download, ticket, context)
            case .token(let request, let url): transfer = try TokenTransfer(request, to: url, ticket, context)
            }
            transfers[ticket.entry.id] = transfer
            send(transfer)
        } catch {
            end(ticket, .failed(error))
        }
    }

    /// Hands the current hop of a transfer to libcurl.
    private func send(_ transfer: Transfer) {
        do throws(CircuitBreaker.Rejection) {
            if transfer.permit == nil {
                transfer.permit = try HostPermit(
                    for: transfer.host, of: transfer.ticket.entry.uid, policy: transfer.origin.breaker, from: scheduler,
                    at: .now())
            }
        } catch {
            return end(transfer, .failed(.rejected(transfer.url.authority, error)))
        }
        do throws(TransferFailure) {
            try transfer.prepare(at: .now())
            if transfer.ticket.job.kind == .download { try attach(transfer) }
        } catch {
            return end(transfer, .failed(error))
        }
        let code = curl_multi_add_handle(multi, transfer.easy.raw)
        guard code == CURLM_OK else {
            return end(transfer, .failed(.origin("libcurl: \(String(cString: curl_multi_strerror(code)))")))
        }
    }

    private func attach(_ transfer: Transfer) throws(TransferFailure) {
        do {
            try pools.attach(transfer.easy, to: transfer.origin)
        } catch {
            throw .origin("libcurl: \(error.reason)")
        }
    }

    /// Tells what a request showed of its host; once for each permit.
    private func report(_ transfer: Transfer, _ finding: CircuitBreakers.Finding) {
        transfer.permit.take()?.end(finding, at: .now())
    }

    /// Lets go of a cancelled transfer. It has begun, or has just been passed over by ``begin(_:)``.
    private func drop(_ ticket: TransferTicket) {
        guard let transfer = transfers.removeValue(forKey: ticket.entry.id) else { return }
        curl_multi_remove_handle(multi, transfer.easy.raw)
        report(transfer, .nothing)
        scheduler.finish(ticket, nil, transfer.allCounts)
    }

    /// Ends a transfer whose time was up before it could begin; the scheduler has counted it.
    private func giveUp(_ ticket: TransferTicket) {
        let (milliseconds, others) = (ticket.job.origin.timeout, ticket.job.kind.name)
        ticket.end(.failed(.timedOut("waited \(milliseconds) ms behind other \(others) and could not begin")))
    }

    private func end(_ transfer: Transfer, _ outcome: TransferOutcome) {
        transfers[transfer.ticket.entry.id] = nil
        report(transfer, .nothing)
        end(transfer.ticket, outcome, transfer.allCounts)
    }

    private func end(
        _ ticket: TransferTicket, _ outcome: TransferOutcome, _ counts: FetcherStatistics.Counts = .init()
    ) {
        if ticket.job.kind == .download, case .failed(let failure) = outcome.ofDownload {
            log.debug("download failed", metadata: ["origin": "\(ticket.entry.host.origin)", "why": "\(failure)"])
        }
        scheduler.finish(ticket, outcome, counts)
        ticket.end(outcome)
    }

    // MARK: libcurl

    private func setLimits(_ configuration: FetcherConfiguration) {
        context.configuration = configuration
        context.lookups.limits = configuration.lookupLimits
        ccurl_multi_set_long(multi, CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX))
        if let origins = configuration.origins { pools.prune(keeping: origins) }
        // libcurl counts by pool, whatever the names say. How many requests there are at once is the queue's to limit;
        // this is about the connections that are kept when they have ended: idle ones are closed, the oldest first.
        ccurl_multi_set_long(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, configuration.downloads + TokenTransfer.mostAtOnce)
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
        // A token request speaks HTTP/1.1, and needs none of it.
        let isOverTLS = transfers.values.contains { $0.url.scheme == .https && $0.ticket.job.kind == .download }
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
    }
}
