import CCurl
import CacheCore
import Glibc
import HelperProtocol
import Logging
import NIOCore
import Origins
import SocketLoops

/// The fetcher's event loop: takes work from the scheduler, hands it to libcurl, and tells how it ended.
///
/// Whatever there is to do is a step of somebody's transfer, and accounts take turns: libcurl is told of one ready
/// socket at a time. So somebody who downloads one image never waits for a step of each of somebody else's hundred.
/// Only two things come all at once: what libcurl's own timers bring (a connection's or a transfer's time is up), and what
/// a name server says of a domain, which is read as it comes. Whoever has waited for that goes on in a step of its own, or
/// fails without one.
///
/// Nothing of it is ever seen by another thread, and nobody is told anything while a lock is held.
final class TransferLoop {
    /// Each costs some tenths of a millisecond, and a new TLS connection some milliseconds.
    private enum Step {
        /// Tells how one ended that has never begun.
        case tell(TransferHandle, TransferOutcome)
        case begin(TransferHandle)
        /// Sends the request of the current hop.
        case send(Transfer)
        /// Lets go of one that was cancelled.
        case drop(TransferHandle)
        /// Goes on with what a socket that is ready belongs to.
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
    private var steps = FairQueue<UInt32, Step>(quantum: 100_000)
    private var isInLine = false
    private var isEnded = false
    private var alarms: Alarms?

    private struct Alarms {
        /// For those who have waited too long.
        let expiry: LoopTimer
        /// For what libcurl waits for but sockets.
        let timeout: LoopTimer
        let nudge: LoopTimer
    }

    /// After which the sockets are looked at, however many steps there are: sooner where several accounts wait for
    /// their turns. Alone one is faster with longer slices, in which what is alike is done in a row.
    private var slice: TimeAmount { .microseconds(steps.owners > 1 ? 200 : 500) }
    /// How often libcurl is called while something may come over HTTP/2. libcurl 7.88 at times reads what belongs to
    /// one transfer on behalf of another and tells neither; the one then stands still until one of its timers goes off,
    /// two seconds later, or until libcurl is called for whatever reason. (Seen with nginx in about one of fifteen runs
    /// of 500 downloads; with this, in none.)
    private static let nudgeEvery = TimeAmount.milliseconds(20)

    /// On the loop only, as all the rest.
    /// - Throws: ``FetcherError`` when libcurl lacks something.
    init(
        scheduler: TransferScheduler, rulesCache: OriginRulesCache, loop: SocketLoop, log: Logger
    ) throws(FetcherError) {
        guard let multi = curl_multi_init() else { throw FetcherError("libcurl: out of memory for a multi handle") }
        self.scheduler = scheduler
        let configuration = scheduler.configuration
        context = TransferContext(
            connections: ConnectionTable(), lookups: NameLookups(limits: configuration.lookupLimits),
            rulesCache: rulesCache, configuration: configuration)
        services = ServiceLookups(loop: loop, names: context.lookups)
        self.multi = multi
        self.log = log
        self.loop = loop.assumeIsolated()
        sockets = TransferSockets(of: multi, loop: loop, log: log) { [weak self] in
            self?.proceed(with: $0)
        }
        alarms = Alarms(
            expiry: LoopTimer(loop) { [weak self] in self?.takeWork() },
            timeout: LoopTimer(loop) { [weak self] in
                self?.call(CURL_SOCKET_TIMEOUT, 0)
                self?.endFinished()
            },
            nudge: LoopTimer(loop) { [weak self] in self?.nudge() })
    }

    deinit {
        guard !isEnded else { return }
        curl_multi_cleanup(multi)
        pools.close()
    }

    // MARK: Rounds

    /// Takes what the scheduler has, and ends the loop's work when the fetcher is stopping.
    func takeWork() {
        guard !isEnded else { return }
        guard let work = scheduler.takeWork(at: .now()) else { return endAll() }
        setLimits(work.configuration)
        for handle in work.expired { add(.tell(handle, .failed(expired(handle))), of: handle.entry.uid) }
        for (handle, why) in work.rejected {
            add(.tell(handle, .failed(.rejected(handle.entry.host, why))), of: handle.entry.uid)
        }
        for handle in work.begin { add(.begin(handle), of: handle.entry.uid) }
        for handle in work.cancelled {
            // Nobody else waits for what its request would have shown.
            if let transfer = transfers[handle.entry.id] { report(transfer, .nothing) }
            add(.drop(handle), of: handle.entry.uid)
        }
        alarms?.expiry.set(work.nextDeadline)
        for sign in work.signs { sign() }
    }

    /// What shares a connection waits in the shortest of the lines of those who share it.
    private func proceed(with socket: TransferSockets.Watched) {
        let shortest = socket.uids.min { steps.count(of: $0) < steps.count(of: $1) }
        if let shortest { add(.proceed(socket), of: shortest) }
    }

    private func add(_ step: Step, of uid: UInt32) {
        steps.append(step, of: uid, cost: 0)
        getInLine()
    }

    private func getInLine() {
        guard !isInLine else { return }
        isInLine = true
        loop.execute { self.takeSteps() }
    }

    /// Takes steps by turns, ends what has ended by them, and then lets the loop look at its sockets. Each download
    /// from its socket to its end, one after the other, would take half as long again: caches would be cold each time.
    private func takeSteps() {
        isInLine = false
        guard !isEnded else { return }
        let begin = NIODeadline.now()
        var now = begin
        while now - begin < slice, let (uid, step) = steps.popFirst() {
            take(step)
            if case .proceed(let socket) = step, socket.uids.count > 1 {
                now = .now()
            } else {
                now = charge(since: now, to: uid)
            }
        }
        endFinished()
        if !steps.isEmpty { getInLine() }
    }

    /// - Returns: the time.
    private func charge(since begin: NIODeadline, to uid: UInt32) -> NIODeadline {
        let end = NIODeadline.now()
        steps.charge(Int((end - begin).nanoseconds), to: uid)
        return end
    }

    private func take(_ step: Step) {
        switch step {
        case .tell(let handle, let outcome): handle.end(outcome)
        case .begin(let handle): begin(handle)
        case .send(let transfer) where transfers[transfer.handle.entry.id] === transfer: send(transfer)
        case .drop(let handle): drop(handle)
        case .proceed(let socket) where socket.isWatched: call(socket.descriptor, socket.takeFound())
        case .send, .proceed: break
        }
    }

    // MARK: One transfer

    private func begin(_ handle: TransferHandle) {
        guard !handle.isCancelled else { return scheduler.finish(handle, nil) }
        do throws(TransferFailure) {
            let transfer: Transfer
            switch handle.job {
            case .download(let download): transfer = try DownloadTransfer(download, handle, context)
            case .token(let request, let url): transfer = try TokenTransfer(request, to: url, handle, context)
            }
            transfers[handle.entry.id] = transfer
            send(transfer)
        } catch {
            end(handle, .failed(error))
        }
    }

    /// Hands the current hop of a transfer to libcurl.
    private func send(_ transfer: Transfer) {
        do throws(CircuitBreaker.Rejection) {
            if transfer.permit == nil {
                transfer.permit = try scheduler.ask(transfer.host, for: transfer.handle.entry.uid, at: .now())
            }
        } catch {
            if transfer.goOn() { return send(transfer) }
            return end(transfer, .failed(.rejected(transfer.host, error)))
        }
        if let domain = transfer.domainToAsk { return askDomain(domain, for: transfer) }
        do throws(TransferFailure) {
            try transfer.prepare(at: .now())
            if transfer.handle.job.kind == .download { try pools.attach(transfer.easy, to: transfer.origin) }
        } catch {
            return end(transfer, .failed(error))
        }
        // It is let go of in a later step.
        guard !transfer.handle.isCancelled else { return }
        let code = curl_multi_add_handle(multi, transfer.easy.raw)
        guard code == CURLM_OK else {
            return end(transfer, .failed(.origin("libcurl: \(String(cString: curl_multi_strerror(code)))")))
        }
        if transfer.needsNudges, alarms?.nudge.deadline == nil { alarms?.nudge.set(.now() + Self.nudgeEvery) }
        // A handle that was added waits for this, and its turn is now.
        call(CURL_SOCKET_TIMEOUT, 0)
    }

    /// Asks whom a transfer is to ask, and goes on with it, or ends it, when that is known.
    private func askDomain(_ domain: String, for transfer: Transfer) {
        let handle = transfer.handle
        let deadline = transfer.beginLookup(at: .now())
        transfer.wait = services.find(
            domain, for: handle.job.asker, until: deadline, context.configuration
        ) { [weak self] answer in
            // One that was let go of meanwhile is not kept for this.
            guard let self, let transfer = transfers[handle.entry.id], !handle.isCancelled else { return }
            transfer.wait = nil
            report(transfer, transfer.finding(answer))
            guard let answer else {
                return end(transfer, .failed(.timedOut("the name server of the address's domain did not answer")))
            }
            if let failure = transfer.take(answer) { return end(transfer, .failed(failure)) }
            add(.send(transfer), of: handle.entry.uid)
        }
    }

    /// Tells what a request showed of its host; once for each permit.
    private func report(_ transfer: Transfer, _ finding: CircuitBreakers.Finding) {
        guard let permit = transfer.permit.take() else { return }
        scheduler.learn(
            finding, of: transfer.host, for: transfer.handle.entry.uid, from: permit, policy: transfer.origin.breaker,
            at: .now())
    }

    /// Lets go of a cancelled transfer. It has begun, or has just been passed over by ``begin(_:)``.
    private func drop(_ handle: TransferHandle) {
        guard let transfer = transfers.removeValue(forKey: handle.entry.id) else { return }
        if let wait = transfer.wait.take() { services.leave(wait) }
        curl_multi_remove_handle(multi, transfer.easy.raw)
        report(transfer, .nothing)
        scheduler.finish(handle, nil, transfer.allCounts)
    }

    /// Its time was up before it could begin; the scheduler has counted it.
    private func expired(_ handle: TransferHandle) -> TransferFailure {
        .timedOut("waited \(handle.job.timeout) ms behind other \(handle.job.kind.name) and could not begin")
    }

    private func end(_ transfer: Transfer, _ outcome: TransferOutcome) {
        transfers[transfer.handle.entry.id] = nil
        report(transfer, .nothing)
        end(transfer.handle, outcome, transfer.allCounts)
    }

    private func end(
        _ handle: TransferHandle, _ outcome: TransferOutcome, _ counts: FetcherStatistics.Counts = .init()
    ) {
        if handle.job.kind == .download, case .failed(let failure) = outcome.ofDownload {
            log.debug("download failed", metadata: ["origin": "\(handle.entry.host.origin)", "why": "\(failure)"])
        }
        scheduler.finish(handle, outcome, counts)
        handle.end(outcome)
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

    /// Has libcurl go on with what waits for a socket, or with all whose time has come. ``endFinished()`` is to be
    /// called then.
    @discardableResult
    private func call(_ socket: curl_socket_t, _ events: Int32) -> CURLMcode {
        if socket == CURL_SOCKET_TIMEOUT { sockets?.willCallForTimer() }
        var running: Int32 = 0
        let code = curl_multi_socket_action(multi, socket, events, &running)
        if code != CURLM_OK {
            // For want of memory or descriptors: not to be tried again without a breath.
            log.error("libcurl failed", metadata: ["why": "\(String(cString: curl_multi_strerror(code)))"])
            usleep(10_000)
            sockets?.callAgainSoon()
        }
        return code
    }

    private func nudge() {
        guard transfers.values.contains(where: \.needsNudges) else { return }
        alarms?.nudge.set(.now() + Self.nudgeEvery)
        for socket in sockets?.all ?? [] where socket.isWatched && socket.needsNudges {
            // Without events libcurl looks for itself.
            guard call(socket.descriptor, 0) == CURLM_OK else { break }
        }
        endFinished()
    }

    private func endFinished() {
        var left: Int32 = 0
        var now = NIODeadline.now()
        while let message = curl_multi_info_read(multi, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
            // The message is gone once the handle is removed.
            let code = ccurl_message_result(message)
            curl_multi_remove_handle(multi, easy)
            guard let transfer = Transfer.of(easy) else { continue }
            if let finding = transfer.finding(code) { report(transfer, finding) }
            if let outcome = transfer.conclude(code) {
                end(transfer, outcome)
            } else {
                add(.send(transfer), of: transfer.handle.entry.uid)
            }
            now = charge(since: now, to: transfer.handle.entry.uid)
        }
        // Also what was let go of may have left others something to do.
        alarms?.timeout.set(sockets?.deadline)
    }

    private func endAll() {
        let rest = scheduler.close()
        // None is held any longer than it takes: a pool is not closed while a handle uses it.
        for id in transfers.keys.sorted() {
            guard let transfer = transfers[id] else { continue }
            curl_multi_remove_handle(multi, transfer.easy.raw)
            end(transfer, .failed(.shuttingDown))
        }
        while let (_, step) = steps.popFirst() {
            switch step {
            case .begin(let handle): end(handle, .failed(.shuttingDown))
            case .tell(let handle, let outcome): handle.end(outcome)
            case .send, .drop, .proceed: break
            }
        }
        for handle in rest { handle.end(.failed(.shuttingDown)) }
        isEnded = true
        services.close()
        alarms = nil
        curl_multi_cleanup(multi)
        pools.close()
    }
}
