import CCurl
import CacheCore
import Glibc
import HelperProtocol
import LinuxSupport
import Logging
import NIOCore
import Origins
import SocketLoops

/// The fetcher's event loop: fetches work from the scheduler, runs libcurl, and reports outcomes.
///
/// All work is divided into steps, each charged to one account, and accounts take turns: libcurl is notified of one
/// ready socket at a time. So an account with one download does not wait for the steps of another with a hundred. Two
/// kinds of work are not steps: libcurl's expired timers and DNS replies, which are processed when they arrive.
///
/// Used on the loop's thread only. Callbacks are called without a lock.
final class TransferLoop {
    /// A piece of work that is charged to one account. Takes some tenths of a millisecond; with a new TLS connection,
    /// some milliseconds.
    private enum Step {
        /// Fails a transfer that has not begun.
        case fail(TransferHandle, FetchFailure)
        case begin(TransferHandle)
        /// Sends the request of the current hop.
        case send(Transfer)
        /// Releases a cancelled transfer.
        case drop(TransferHandle)
        /// Passes the events of a ready socket to libcurl.
        case proceed(TransferSockets.Watched)
    }

    private let scheduler: TransferScheduler
    private let log: Logger
    private let loop: NIOIsolatedEventLoop
    private let multi: UnsafeMutableRawPointer
    private let pools = ConnectionPools()
    private var sockets: TransferSockets?
    private let services: ServiceLookups
    private var context: TransferContext
    private var transfers: [UInt64: Transfer] = [:]
    /// By account, in nanoseconds.
    private var steps = DeficitRoundRobin<UInt32, Step>(quantum: 100_000)
    private var isScheduled = false
    private var isEnded = false
    private var alarms: Alarms?
    private var isLDAPReady = false
    private var waitingForLDAP: [TransferHandle] = []

    private struct Alarms {
        /// For transfers that waited too long.
        let expiry: LoopTimer
        /// For libcurl's own timers.
        let timeout: LoopTimer
        let poll: LoopTimer
    }

    /// The time after which sockets are polled again. Shorter if several accounts wait for their turns; otherwise
    /// longer slices are faster, because similar work then runs in a row.
    private var slice: TimeAmount { .microseconds(steps.accounts > 1 ? 200 : 500) }
    /// How often libcurl is called while HTTP/2 or LDAP responses are expected. When libcurl 7.88 reads data of one
    /// transfer on behalf of another, it sometimes notifies neither. The transfer then stalls until libcurl is called
    /// again, which can take two seconds. (With nginx in about one of fifteen runs of 500 downloads; with this, in
    /// none.) While it waits for the reply to an LDAP bind, it watches no socket.
    private static let pollInterval = TimeAmount.milliseconds(20)

    /// Call it on the loop's thread.
    /// - Throws: if libcurl is out of memory.
    init(
        scheduler: TransferScheduler, rulesCache: OriginRulesCache, loop: SocketLoop, log: Logger
    ) throws(FetcherError) {
        guard let multi = curl_multi_init() else { throw FetcherError("libcurl: out of memory for a multi handle") }
        self.scheduler = scheduler
        let (settings, environment) = (scheduler.settings, scheduler.environment)
        context = TransferContext(
            connections: ConnectionTable(), lookups: NameLookups(limits: environment.lookupLimits(settings)),
            rulesCache: rulesCache, environment: environment, settings: settings)
        services = ServiceLookups(loop: loop, names: context.lookups)
        self.multi = multi
        self.log = log
        self.loop = loop.assumeIsolated()
        sockets = TransferSockets(of: multi, loop: loop, log: log) { [weak self] in
            self?.proceed(with: $0)
        }
        alarms = Alarms(
            expiry: LoopTimer(loop) { [weak self] in self?.fetchWork() },
            timeout: LoopTimer(loop) { [weak self] in
                self?.runCurl(CURL_SOCKET_TIMEOUT, 0)
                self?.endFinished()
            },
            poll: LoopTimer(loop) { [weak self] in self?.poll() })
    }

    deinit {
        guard !isEnded else { return }
        curl_multi_cleanup(multi)
        pools.close()
    }

    // MARK: Rounds

    /// Fetches the scheduler's work; ends all transfers if the fetcher is stopping.
    func fetchWork() {
        guard !isEnded else { return }
        guard let work = scheduler.fetchWork(at: .now()) else { return endAll() }
        setLimits(work.settings)
        for handle in work.expired { add(.fail(handle, expired(handle)), of: handle.entry.account) }
        for (handle, reason) in work.rejected {
            add(.fail(handle, .rejected(handle.entry.host, reason)), of: handle.entry.account)
        }
        for handle in work.begin { add(.begin(handle), of: handle.entry.account) }
        for handle in work.cancelled {
            // Releases the permit now, so that no request waits for a cancelled probe.
            if let transfer = transfers[handle.entry.id] { report(transfer, .nothing) }
            add(.drop(handle), of: handle.entry.account)
        }
        alarms?.expiry.set(work.nextDeadline)
        for callback in work.livenessCallbacks { callback() }
    }

    /// Charges a socket that several accounts share to the one with the fewest waiting steps.
    private func proceed(with socket: TransferSockets.Watched) {
        let shortest = socket.accounts.min { steps.count(of: $0) < steps.count(of: $1) }
        if let shortest { add(.proceed(socket), of: shortest) }
    }

    private func add(_ step: Step, of account: UInt32) {
        steps.append(step, of: account, cost: 0)
        scheduleSteps()
    }

    private func scheduleSteps() {
        guard !isScheduled else { return }
        isScheduled = true
        loop.execute { self.performSteps() }
    }

    /// Performs steps for one slice, then completes the finished transfers and lets the loop poll sockets. Completing
    /// each transfer before the next step instead would take 1.5 times as long, because of cold caches.
    private func performSteps() {
        isScheduled = false
        guard !isEnded else { return }
        let begin = NIODeadline.now()
        var now = begin
        while now - begin < slice, let (account, step) = steps.popFirst() {
            perform(step)
            if case .proceed(let socket) = step, socket.accounts.count > 1 {
                now = .now()
            } else {
                now = charge(since: now, to: account)
            }
        }
        endFinished()
        if !steps.isEmpty { scheduleSteps() }
    }

    /// Returns the current time.
    private func charge(since begin: NIODeadline, to account: UInt32) -> NIODeadline {
        let end = NIODeadline.now()
        steps.charge(Int((end - begin).nanoseconds), to: account)
        return end
    }

    private func perform(_ step: Step) {
        switch step {
        case .fail(let handle, let failure): handle.fail(failure)
        case .begin(let handle): begin(handle)
        case .send(let transfer) where transfers[transfer.handle.entry.id] === transfer: send(transfer)
        case .drop(let handle): drop(handle)
        case .proceed(let socket) where socket.isWatched: runCurl(socket.descriptor, socket.removeEvents())
        case .send, .proceed: break
        }
    }

    // MARK: One transfer

    private func begin(_ handle: TransferHandle) {
        guard !handle.isCancelled else { return scheduler.finish(handle, nil) }
        do throws(FetchFailure) {
            let transfer: Transfer
            switch handle.job {
            case .download(let download) where DirectoryTransfer.isFor(download.target):
                guard isLDAPReady else { return try prepareLDAP(for: handle) }
                transfer = try DirectoryTransfer(download, handle, context)
            case .download(let download): transfer = try DownloadTransfer(download, handle, context)
            case .token(let request, let url): transfer = try TokenTransfer(request, to: url, handle, context)
            }
            transfers[handle.entry.id] = transfer
            send(transfer)
        } catch {
            end(handle, handle.job.failed(error))
        }
    }

    /// Begins the transfer once libldap is initialized. Its initialization resolves this machine's name, so it blocks a
    /// thread of its own for as long as the resolver does.
    private func prepareLDAP(for handle: TransferHandle) throws(FetchFailure) {
        if waitingForLDAP.isEmpty {
            let bound = NIOLoopBound(self, eventLoop: loop.nonisolated())
            do throws(SystemError) {
                pthread_detach(
                    try startThread(named: "libldap") {
                        // Includes the version of libldap.
                        _ = curl_version()
                        bound.eventLoop.execute { bound.value.beginLDAP() }
                    })
            } catch {
                throw .busy("\(error)")
            }
        }
        waitingForLDAP.append(handle)
    }

    private func beginLDAP() {
        isLDAPReady = true
        for handle in waitingForLDAP { add(.begin(handle), of: handle.entry.account) }
        waitingForLDAP = []
    }

    /// Starts the request of a transfer's current hop in libcurl.
    private func send(_ transfer: Transfer) {
        do throws(CircuitBreaker.Rejection) {
            if transfer.permit == nil {
                transfer.permit = try scheduler.acquirePermit(
                    for: transfer.host, account: transfer.handle.entry.account, at: .now())
            }
        } catch {
            if transfer.tryNextHost() { return send(transfer) }
            return fail(transfer, .rejected(transfer.host, error))
        }
        if let domain = transfer.domainToQuery { return queryDomain(domain, for: transfer) }
        do throws(FetchFailure) {
            try transfer.prepare(at: .now())
            if transfer.handle.job.kind == .download { try pools.attach(transfer.easy, to: transfer.origin) }
        } catch {
            return fail(transfer, error)
        }
        // Released in a later step.
        guard !transfer.handle.isCancelled else { return }
        let code = curl_multi_add_handle(multi, transfer.easy.raw)
        guard code == CURLM_OK else {
            return fail(transfer, .origin("libcurl: \(String(cString: curl_multi_strerror(code)))"))
        }
        if transfer.needsPolling, alarms?.poll.deadline == nil {
            alarms?.poll.set(.now() + Self.pollInterval)
        }
        // libcurl starts a new handle when its timer expires; this starts it now.
        runCurl(CURL_SOCKET_TIMEOUT, 0)
    }

    /// Looks up the hosts that a domain names, then continues the transfer or fails it.
    private func queryDomain(_ domain: String, for transfer: Transfer) {
        let handle = transfer.handle
        let deadline = transfer.beginLookup(at: .now())
        transfer.serviceLookup = services.lookUp(
            domain, for: handle.job.lookupClient, until: deadline, context.environment
        ) { [weak self] response in
            // The transfer may have been removed meanwhile.
            guard let self, let transfer = transfers[handle.entry.id], !handle.isCancelled else { return }
            transfer.serviceLookup = nil
            report(transfer, transfer.finding(response))
            guard let response else {
                return fail(transfer, .timedOut("the name server of the address's domain did not respond in time"))
            }
            do throws(FetchFailure) {
                try transfer.accept(response)
            } catch {
                return fail(transfer, error)
            }
            add(.send(transfer), of: handle.entry.account)
        }
    }

    /// Records what a request showed of its host, once for each permit.
    private func report(_ transfer: Transfer, _ finding: CircuitBreakers.Finding) {
        guard let permit = transfer.permit.take() else { return }
        scheduler.record(
            finding, of: transfer.host, for: transfer.handle.entry.account, from: permit,
            policy: transfer.origin.breaker,
            at: .now())
    }

    /// Releases a cancelled transfer that has begun.
    private func drop(_ handle: TransferHandle) {
        guard let transfer = transfers.removeValue(forKey: handle.entry.id) else { return }
        if let wait = transfer.serviceLookup.take() { services.cancel(wait) }
        curl_multi_remove_handle(multi, transfer.easy.raw)
        report(transfer, .nothing)
        scheduler.finish(handle, nil, transfer.allCounts)
    }

    /// The failure of a transfer that expired in the queue. The scheduler has counted it.
    private func expired(_ handle: TransferHandle) -> FetchFailure {
        .timedOut("waited \(handle.job.timeout) ms in the queue of \(handle.job.kind.pluralName)")
    }

    private func fail(_ transfer: Transfer, _ failure: FetchFailure) {
        end(transfer, transfer.handle.job.failed(failure))
    }

    private func end(_ transfer: Transfer, _ outcome: TransferOutcome) {
        transfers[transfer.handle.entry.id] = nil
        report(transfer, .nothing)
        end(transfer.handle, outcome, transfer.allCounts)
    }

    private func end(
        _ handle: TransferHandle, _ outcome: TransferOutcome, _ counts: FetcherStatistics.Counts = .init()
    ) {
        if case .download(.failed(let failure)) = outcome {
            log.debug("download failed", metadata: ["origin": "\(handle.entry.host.origin)", "reason": "\(failure)"])
        }
        scheduler.finish(handle, outcome, counts)
        handle.end(outcome)
    }

    // MARK: libcurl

    private func setLimits(_ settings: FetcherSettings) {
        context.settings = settings
        context.lookups.limits = context.environment.lookupLimits(settings)
        ccurl_multi_set_long(multi, CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX))
        if let origins = settings.origins { pools.prune(keeping: origins) }
        // libcurl counts connections by pool. The queue limits concurrent requests; these limits apply to idle
        // connections, of which libcurl closes the oldest.
        ccurl_multi_set_long(
            multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, settings.downloads + TokenTransfer.maximumConcurrent)
        ccurl_multi_set_long(multi, CURLMOPT_MAXCONNECTS, settings.idleConnections(pools: pools.count))
    }

    /// Lets libcurl process a socket's events or its expired timers. Call ``endFinished()`` afterwards.
    @discardableResult
    private func runCurl(_ socket: curl_socket_t, _ events: Int32) -> CURLMcode {
        if socket == CURL_SOCKET_TIMEOUT { sockets?.clearDeadline() }
        var running: Int32 = 0
        let code = curl_multi_socket_action(multi, socket, events, &running)
        if code != CURLM_OK {
            // Out of memory or descriptors: pause before the next attempt.
            log.error("libcurl failed", metadata: ["reason": "\(String(cString: curl_multi_strerror(code)))"])
            usleep(10_000)
            sockets?.retrySoon()
        }
        return code
    }

    private func poll() {
        guard transfers.values.contains(where: \.needsPolling) else { return }
        alarms?.poll.set(.now() + Self.pollInterval)
        guard !transfers.values.contains(where: { $0.url.scheme.isDirectory }) else {
            var running: Int32 = 0
            ccurl_multi_socket_all(multi, &running)
            return endFinished()
        }
        for socket in sockets?.all ?? [] where socket.isWatched && socket.needsPolling {
            // Without events, libcurl polls the socket itself.
            guard runCurl(socket.descriptor, 0) == CURLM_OK else { break }
        }
        endFinished()
    }

    private func endFinished() {
        var left: Int32 = 0
        var now = NIODeadline.now()
        while let message = curl_multi_info_read(multi, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
            // Removing the handle frees the message.
            let code = ccurl_message_result(message)
            curl_multi_remove_handle(multi, easy)
            guard let transfer = Transfer.of(easy) else { continue }
            if let finding = transfer.finding(code) { report(transfer, finding) }
            if let outcome = transfer.conclude(code) {
                end(transfer, outcome)
            } else {
                add(.send(transfer), of: transfer.handle.entry.account)
            }
            now = charge(since: now, to: transfer.handle.entry.account)
        }
        // Releasing transfers may have set an earlier deadline.
        alarms?.timeout.set(sockets?.deadline)
    }

    private func endAll() {
        let rest = scheduler.close()
        // A pool must not be closed while a handle uses it.
        for id in transfers.keys.sorted() {
            guard let transfer = transfers[id] else { continue }
            curl_multi_remove_handle(multi, transfer.easy.raw)
            fail(transfer, .shuttingDown)
        }
        while let (_, step) = steps.popFirst() {
            switch step {
            case .begin(let handle): end(handle, handle.job.failed(.shuttingDown))
            case .fail(let handle, let failure): handle.fail(failure)
            case .send, .drop, .proceed: break
            }
        }
        for handle in waitingForLDAP { end(handle, handle.job.failed(.shuttingDown)) }
        waitingForLDAP = []
        for handle in rest { handle.fail(.shuttingDown) }
        isEnded = true
        services.close()
        alarms = nil
        curl_multi_cleanup(multi)
        pools.close()
    }
}
