import CacheCore
import Glibc
import HelperProtocol
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Origins
import SocketLoops

/// Has images downloaded and access tokens renewed by a process of its own, which has libcurl and neither keys nor
/// store: who breaks in there through an answer of an origin's has what it is asked for, and no more.
///
/// One lock over what is expected of the fetcher and what it has yet to be told; a thread sends and receives. A fetcher
/// that ends fails what was under way, and is started again. What it says is held against what it was asked: a length,
/// a kind, a token or a picture that cannot be ends it, or the download alone.
///
/// ``start()`` comes before the first download and ``shutdown()`` after the last.
package final class FetcherClient: ImageFetching, TokenFetching {
    /// How long a fetcher that owes an answer may give no sign of life: twice that, at most.
    private let patience: TimeAmount
    let loop: SocketLoop
    let state: NIOLockedValueBox<State>
    private let link: any HelperConnector
    private let rulesCache = OriginRulesCache()
    let log: Logger

    /// - Parameter link: how a fetcher is had.
    /// - Throws: when the system gives no thread, or nothing to wait with.
    package init(
        settings: FetcherSettings, link: any HelperConnector, patience: TimeAmount = .seconds(10), log: Logger
    ) throws {
        state = NIOLockedValueBox(State(settings: settings))
        loop = try SocketLoop(named: "downloads")
        (self.link, self.patience, self.log) = (link, patience, log)
    }

    /// Has the first fetcher started. Where that fails, it is tried again and again.
    package func start() throws { try loop.submit { self.connect() }.wait() }

    /// Ends every download with ``CacheFailure/shuttingDown``, the fetcher and the thread. Returns when no `onEnd`
    /// runs any more. Idempotent; not to be called from an `onEnd`.
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

    /// Puts other limits in force, for downloads that begin from now on. A fetcher cannot come to read what it was not
    /// to read when it was started: for another file of authorities there is another fetcher, and what the old one was
    /// at fails.
    package func update(_ settings: FetcherSettings) {
        let (outgrown, mustCall) = state.withLockedValue { state in
            let canRead = settings.authorities.isSubset(of: state.settings.authorities)
            state.settings = settings
            if !canRead { return (state.connection, false) }
            return (nil, state.say(.settings(settings)))
        }
        if mustCall { call() }
        if let outgrown { loop.execute { outgrown.value.close() } }
    }

    // MARK: Asking

    package func target(
        origin: Origin, user: OpaqueID, imageKey: ImageKey, url: String?
    ) throws(CacheFailure) -> DownloadTarget {
        let rules: OriginRules
        do {
            rules = try rulesCache.rules(of: origin)
        } catch {
            throw .invalid("the origin is misconfigured: \(error)")
        }
        return try rules.target(origin: origin, user: user, imageKey: imageKey, url: url)
    }

    package func start(
        _ download: Download, onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) throws(CacheFailure) -> any DownloadHandle {
        let expected = Expected.download(
            uid: download.uid, framing: download.framing, isConditional: download.condition != nil, onEnd)
        do throws(TransferFailure) {
            return try ask(expected, of: download.origin) { .download($0, DownloadRequest(download)) }
        } catch {
            throw CacheFailure(error)
        }
    }

    package func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, TransferFailure>) -> Void
    ) throws(TransferFailure) -> any DownloadHandle {
        try ask(.token(uid: request.uid, onEnd), of: request.origin) { .token($0, TokenRefresh(request)) }
    }

    package var isBusy: Bool { state.withLockedValue { $0.downloads > 0 } }

    private func ask(
        _ expected: Expected, of origin: Origin, _ request: (UInt64) -> FetcherRequest
    ) throws(TransferFailure) -> FetcherTask {
        let (id, mustCall) = try state.withLockedValue { state in
            Result { () throws(TransferFailure) in
                let id = try state.expect(expected)
                let mustCall = state.introduce(origin)
                return (id, state.say(request(id)) || mustCall)
            }
        }.get()
        if mustCall { call() }
        return FetcherTask(id: id, client: self)
    }

    func cancel(_ id: UInt64) {
        let (forgotten, mustCall) = state.withLockedValue { state -> (Expected?, Bool) in
            guard let forgotten = state.take(id) else { return (nil, false) }
            return (forgotten, state.say(.cancel(id)))
        }
        if mustCall { call() }
        // What it held goes outside of the lock.
        withExtendedLifetime(forgotten) {}
    }

    // MARK: Signs of life and figures

    /// Calls `sign` from the thread that speaks with the fetcher. `sign` must not block.
    package func whenAlive(_ sign: @escaping @Sendable () -> Void) { loop.execute(sign) }

    /// What the fetcher said last, with what those before it counted.
    package var statistics: FetcherStatistics { state.withLockedValue { $0.statistics } }

    /// Has the fetcher say what it has counted up to now, and waits until it has: at once where there is none.
    package func readStatistics() async {
        await withCheckedContinuation { continuation in
            readStatistics { continuation.resume() }
        }
    }

    private func readStatistics(_ then: @escaping @Sendable () -> Void) {
        // Those who ask while an answer is on its way share the next: that one may be from before they asked.
        let (isWaiting, mustCall) = state.withLockedValue { state in
            guard state.connection != nil else { return (false, false) }
            state.askers.append(then)
            return (true, state.askForStatistics())
        }
        if !isWaiting { then() }
        if mustCall { call() }
    }

    // MARK: On the loop

    /// Has the thread send what there is to say.
    func call() { loop.execute { self.flush() } }

    private func flush() {
        let (outgoing, connection) = state.withLockedValue { state in
            state.isCalled = false
            defer { state.outgoing = ByteBuffer() }
            return (state.outgoing, state.connection)
        }
        connection?.value.send(outgoing)
        watchOver(connection)
    }

    private func connect() {
        do {
            let descriptor = try link.open()
            let connection = FetcherConnection(try loop.adopt(descriptor), client: self)
            let mustCall = state.withLockedValue { state -> Bool in
                guard !state.isEnded else { return false }
                state.began(NIOLoopBound(connection, eventLoop: loop), at: .now())
                return state.say(.settings(state.settings))
            }
            if state.withLockedValue({ $0.isEnded }) { return connection.close() }
            if mustCall { flush() }
        } catch {
            if (error as? SystemError)?.code == EPIPE {
                state.withLockedValue { $0.cannotStart = true }
                log.error("no process that downloads can be started", metadata: ["reason": "\(error)"])
            } else {
                lost("it cannot be had: \(error)")
            }
        }
    }

    /// There is no fetcher any more, or none was to be had.
    func lost(_ reason: String) {
        let pause = state.withLockedValue { $0.ended(at: .now()) }
        guard let pause else { return fail(with: .shuttingDown) }
        log.error(
            "the process that downloads has ended, and is started again",
            metadata: ["reason": "\(reason)", "ms": "\(pause.nanoseconds / 1_000_000)"])
        fail(with: .origin("the process that downloads ended before it had an answer"))
        if pause == .zero { connect() } else { loop.scheduleTask(in: pause) { self.connect() } }
    }

    /// Tells everybody who expects something that it will not come.
    private func fail(with failure: TransferFailure) {
        let (expected, askers) = state.withLockedValue { $0.takeAll() }
        for (_, expected) in expected.sorted(by: { $0.key < $1.key }) { expected.fail(failure) }
        for asker in askers { asker() }
    }

    /// Ends a fetcher that owes an answer and gives no sign of life.
    private func watchOver(_ connection: NIOLoopBound<FetcherConnection>?) {
        guard let connection = connection?.value, connection.isOpen, !connection.isWatchedOver,
            let mustCall = state.withLockedValue({ $0.owesAnswer ? $0.askForSign() : nil })
        else { return }
        connection.isWatchedOver = true
        if mustCall { call() }
        let bound = NIOLoopBound(connection, eventLoop: loop)
        loop.scheduleTask(in: patience) {
            let connection = bound.value
            connection.isWatchedOver = false
            guard connection.isOpen else { return }
            if self.state.withLockedValue({ $0.owesSign }) {
                self.log.error("the process that downloads is stuck")
                return connection.close()
            }
            self.watchOver(bound)
        }
    }

    /// What the fetcher has said. On the loop, outside of every lock.
    func take(_ report: FetcherReport, body: ImageBytes.Builder?) throws(MessageError) {
        switch report {
        case .alive(let number):
            guard state.withLockedValue({ $0.isAlive(number) }) else {
                throw MessageError("is no sign of life that was asked for, or comes before figures that were")
            }
        case .statistics(_, let statistics):
            guard let (askers, mustCall) = state.withLockedValue({ $0.learned(statistics) }) else {
                throw MessageError("answers what nobody has asked")
            }
            for asker in askers { asker() }
            if mustCall { call() }
        case .image(let id, _, _), .missing(let id, _), .unusable(let id, _, _), .notModified(let id, _),
            .failed(let id, _), .token(let id, _):
            let (expected, settings) = state.withLockedValue { ($0.take(id), $0.settings) }
            // Of what was cancelled meanwhile nobody wants to know.
            try expected?.end(report, body, settings)
        }
    }
}

/// A request that the fetcher was handed.
struct FetcherTask: DownloadHandle {
    let id: UInt64
    let client: FetcherClient

    func cancel() { client.cancel(id) }
}
