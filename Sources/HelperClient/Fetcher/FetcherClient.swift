import CacheCore
import Glibc
import HelperProtocol
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Origins
import SocketLoops

/// Downloads images and refreshes access tokens through the fetcher, a process with libcurl but without keys and store.
///
/// An attacker who takes over the fetcher through a response of an origin sees the requests given to it, and no more.
/// The client checks each report against the request: an impossible message ends the fetcher, an invalid image or token
/// fails that request.
///
/// A lock guards the pending requests and the unsent messages; a thread sends and receives. `FetcherService` in the
/// program thumbcached-fetcher handles them. ``start()`` obtains a socket through ``HelperSupervisor`` from systemd or
/// a ``ForkServer``, and sends the settings as the first message, for which `FetcherProgram.serve(_:)` waits. If the
/// fetcher ends, pending requests fail and another fetcher is started.
///
/// Call ``start()`` before the first download and ``shutdown()`` after the last.
package final class FetcherClient: ImageFetching, TokenFetching {
    /// Time between pings while a reply is pending. A fetcher that does not answer a ping until the next is ended.
    private let pingInterval: TimeAmount
    let loop: SocketLoop
    let state: NIOLockedValueBox<State>
    private let supervisor: HelperSupervisor
    private let rulesCache = OriginRulesCache()

    package init(
        settings: FetcherSettings, connector: any HelperConnector, pingInterval: TimeAmount = .seconds(10), log: Logger
    ) throws {
        state = NIOLockedValueBox(State(settings: settings))
        loop = try SocketLoop(named: "downloads")
        supervisor = HelperSupervisor("fetcher", connector: connector, failureLevel: .error, log: log) {
            Int64(NIODeadline.now().uptimeNanoseconds / 1_000_000)
        }
        self.pingInterval = pingInterval
    }

    /// Starts the first fetcher, and retries in the background if that fails.
    package func start() throws { try loop.submit { self.connect() }.wait() }

    /// Fails all requests with ``FetchFailure/shuttingDown``, and ends the fetcher and the thread. Returns when the
    /// last `onEnd` has returned. Idempotent. Must not be called from an `onEnd`.
    package func shutdown() {
        let connection = state.withLockedValue { state in
            state.isEnded = true
            return state.connection
        }
        loop.execute {
            connection?.value.close()
            self.fail(with: .shuttingDown)
        }
        let hasEnded = Semaphore()
        loop.end(hasEnded.signal)
        hasEnded.wait()
    }

    /// Applies other settings to downloads that start from now on. A new `ca-file` starts another fetcher, because a
    /// confined one cannot be given access to more files; requests to the old one fail.
    package func update(_ settings: FetcherSettings) {
        let (outdated, mustWake) = state.withLockedValue { state in
            let canRead = settings.authorities.isSubset(of: state.settings.authorities)
            state.settings = settings
            if !canRead { return (state.connection, false) }
            return (nil, state.enqueue(.settings(settings)))
        }
        if mustWake { wake() }
        if let outdated { loop.execute { outdated.value.close() } }
    }

    // MARK: Requests

    package func target(
        origin: Origin, user: OpaqueID, imageKey: ImageKey, url: String?
    ) throws(CacheFailure) -> DownloadTarget {
        let rules: OriginRules
        do {
            rules = try rulesCache.rules(of: origin)
        } catch {
            throw .invalid("invalid configuration of the origin: \(error)")
        }
        return try rules.target(origin: origin, user: user, imageKey: imageKey, url: url)
    }

    package func start(
        _ download: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) throws(FetchFailure) -> any DownloadHandle {
        let pending = PendingRequest.download(
            account: download.account, framing: download.framing, isConditional: download.condition != nil, onEnd)
        return try send(pending, of: download.origin) { .download($0, download) }
    }

    package func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, FetchFailure>) -> Void
    ) throws(FetchFailure) -> any DownloadHandle {
        try send(.token(account: request.account, onEnd), of: request.origin) { .token($0, request) }
    }

    /// Milliseconds that a fetcher may take to answer ``refusal(of:)``.
    private static var maximumCheck: Int64 { 2_000 }

    package func refusal(of download: Download) async -> FetchRefusal? {
        var timeout: Scheduled<Void>?
        let refusal = await withCheckedContinuation { continuation in
            do throws(FetchFailure) {
                let pending = PendingRequest.check(account: download.account) { continuation.resume(returning: $0) }
                let id = try send(pending, of: download.origin) { .check($0, download) }.id
                timeout = loop.scheduleTask(in: .milliseconds(Self.maximumCheck)) {
                    if self.state.withLockedValue({ $0.remove(id) }) != nil { continuation.resume(returning: nil) }
                }
            } catch {
                continuation.resume(returning: FetchRefusal(error))
            }
        }
        timeout?.cancel()
        return refusal
    }

    package var isBusy: Bool { state.withLockedValue { $0.downloads > 0 } }

    private func send(
        _ pending: PendingRequest, of origin: Origin, _ request: (UInt64) -> FetcherRequest
    ) throws(FetchFailure) -> FetcherTask {
        let cannotStart = supervisor.retryDelay == nil
        let (id, mustWake) = try state.withLockedValue { state in
            Result { () throws(FetchFailure) in
                let id = try state.register(pending, cannotStart: cannotStart)
                let mustWake = state.sendIfChanged(origin)
                return (id, state.enqueue(request(id)) || mustWake)
            }
        }.get()
        if mustWake { wake() }
        return FetcherTask(id: id, client: self)
    }

    func cancel(_ id: UInt64) {
        let (cancelled, mustWake) = state.withLockedValue { state -> (PendingRequest?, Bool) in
            guard let cancelled = state.remove(id) else { return (nil, false) }
            return (cancelled, state.enqueue(.cancel(id)))
        }
        if mustWake { wake() }
        // Releases what `onEnd` captured outside the lock.
        withExtendedLifetime(cancelled) {}
    }

    // MARK: Liveness and statistics

    /// Calls `work` on the client's thread, which it must not block.
    package func callOnLoop(_ work: @escaping @Sendable () -> Void) { loop.execute(work) }

    /// The statistics read last, including the counters of earlier fetchers.
    package var statistics: FetcherStatistics { state.withLockedValue { $0.statistics } }

    /// Requests the fetcher's current statistics, and returns when they have arrived; at once if no fetcher runs.
    package func readStatistics() async {
        await withCheckedContinuation { continuation in
            readStatistics { continuation.resume() }
        }
    }

    private func readStatistics(_ onEnd: @escaping @Sendable () -> Void) {
        let (isWaiting, mustWake) = state.withLockedValue { state in
            guard state.connection != nil else { return (false, false) }
            return (true, state.requestStatistics(onEnd))
        }
        if !isWaiting { onEnd() }
        if mustWake { wake() }
    }

    // MARK: On the loop

    /// Makes the thread send the queued messages.
    func wake() { loop.execute { self.flush() } }

    private func flush() {
        let (outgoing, connection) = state.withLockedValue { state in
            state.isWoken = false
            defer { state.outgoing = ByteBuffer() }
            return (state.outgoing, state.connection)
        }
        connection?.value.send(outgoing)
        watch(connection)
    }

    private func connect() {
        guard state.withLockedValue({ !$0.isEnded }), let descriptor = open() else { return }
        do {
            let connection = FetcherConnection(try loop.adopt(descriptor), client: self)
            let isEnded = state.withLockedValue { state in
                state.began(NIOLoopBound(connection, eventLoop: loop))
                _ = state.enqueue(.settings(state.settings))
                return state.isEnded
            }
            if isEnded { connection.close() } else { flush() }
        } catch {
            supervisor.failed("\(error)")
            reconnect()
        }
    }

    /// Returns a socket to a fetcher; nil after a failure, which is retried.
    private func open() -> CInt? {
        do throws(SystemError) {
            return try supervisor.open()
        } catch {
            reconnect()
            return nil
        }
    }

    private func reconnect() {
        guard let delay = supervisor.retryDelay else { return }
        loop.scheduleTask(in: .milliseconds(delay)) { self.connect() }
    }

    /// The connection is closed. On the loop.
    /// - Parameter failure: nil if the client closed the connection without a failure of the fetcher.
    func closed(_ failure: String?) {
        let isEnded = state.withLockedValue { state in
            state.disconnected()
            return state.isEnded
        }
        if isEnded { return fail(with: .shuttingDown) }
        if let failure { supervisor.failed(failure) }
        fail(with: .origin("the fetcher process ended before it replied"))
        reconnect()
    }

    private func fail(with failure: FetchFailure) {
        let (pending, readers) = state.withLockedValue { $0.removeAll() }
        for (_, pending) in pending.sorted(by: { $0.key < $1.key }) { pending.fail(failure) }
        for reader in readers { reader() }
    }

    /// Pings the fetcher while a reply is pending, and closes the connection if it does not answer a ping.
    private func watch(_ connection: NIOLoopBound<FetcherConnection>?) {
        guard let connection = connection?.value, connection.isOpen, !connection.isWatched,
            let mustWake = state.withLockedValue({ $0.isReplyPending ? $0.requestPong() : nil })
        else { return }
        connection.isWatched = true
        if mustWake { wake() }
        let bound = NIOLoopBound(connection, eventLoop: loop)
        loop.scheduleTask(in: pingInterval) {
            let connection = bound.value
            connection.isWatched = false
            guard connection.isOpen else { return }
            if self.state.withLockedValue({ $0.isPongPending }) { return connection.close("did not answer a ping") }
            self.watch(bound)
        }
    }

    /// Handles a message from the fetcher. On the loop, without a lock.
    /// - Parameter body: the image, if any; moved out if the report is an image.
    func handle(_ report: FetcherReport, body: inout ImageBytes.Builder?) throws(MessageError) {
        switch report {
        case .pong(let number):
            guard let isFirst = state.withLockedValue({ $0.acceptPong(number) }) else {
                throw MessageError("unexpected pong (wrong number, or requested statistics were skipped)")
            }
            if isFirst { supervisor.started() }
        case .statistics(_, let statistics):
            guard let (readers, mustWake) = state.withLockedValue({ $0.acceptStatistics(statistics) }) else {
                throw MessageError("unexpected statistics")
            }
            for reader in readers { reader() }
            if mustWake { wake() }
        case .image(let id, _, _), .missing(let id, _), .unusable(let id, _, _), .notModified(let id, _),
            .failed(let id, _), .token(let id, _), .checked(let id, _):
            // nil if the request was cancelled meanwhile.
            let (pending, settings) = state.withLockedValue { ($0.remove(id), $0.settings) }
            try pending?.end(report, &body, settings)
        }
    }
}

/// A request that was sent to the fetcher.
struct FetcherTask: DownloadHandle {
    let id: UInt64
    let client: FetcherClient

    func cancel() { client.cancel(id) }
}
