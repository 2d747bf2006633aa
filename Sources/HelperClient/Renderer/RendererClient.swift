import CacheCore
import Glibc
import HelperProtocol
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Has pictures made in other sizes by the processes behind a link: a worker for each uid at a time, which sees no other
/// uid's pictures.
///
/// It blocks threads of a pool of its own: of these there are as many as pictures may be worked on at once.
public final class RendererClient: ImageRendering {
    private struct State {
        /// Connections without work, the one that has waited longest first.
        var idle: [Idle] = []
        /// Closes the first of them when it is due.
        var timer: (any Timer)?
        /// What is being made, by its number.
        var working: [UInt32: Work] = [:]
        var isShutDown = false
        /// Tries in a row at which no worker was to be had, and when the next is due.
        var failures = 0
        var retryAt: Int64 = 0
        var lastNumber: UInt32 = 0
    }

    private struct Work {
        let uid: UInt32
        /// Whether that uid's pictures were to be forgotten since: then its worker is not used again.
        var isForgotten = false
        var worker: WorkerConnection?
    }

    private struct Idle {
        let uid: UInt32
        let limits: WorkerLimits
        let worker: WorkerConnection
        /// When it is closed: milliseconds of ``Timekeeping/uptime``.
        let end: Int64
    }

    /// Connections kept open without work.
    private static var mostIdle: Int { 16 }
    /// Milliseconds without work after which a worker's connection is closed. The renderer kills the worker then, whatever
    /// it does.
    private static var longestIdle: Int64 { 10_000 }
    /// Milliseconds without a renderer before another is looked for.
    private static let backoff = Backoff(base: 1_000, most: 60_000)

    private let link: any HelperConnector
    private let pool: any BlockingPool
    private let time: any Timekeeping
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - pool: a thread for each picture that may be worked on at once. It shares them out among uids.
    package init(link: any HelperConnector, pool: any BlockingPool, time: any Timekeeping, log: Logger) {
        (self.link, self.pool, self.time, self.log) = (link, pool, time, log)
    }

    public func render(
        _ source: ByteBuffer, _ wish: RenditionOptions, for uid: UInt32, isWanted: @escaping @Sendable () -> Bool,
        onEnd: @escaping @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void
    ) {
        guard source.readableBytes <= RenderRequest.longestPicture else { return onEnd(.failure(.badPicture)) }
        let isPaused = state.withLockedValue { $0.retryAt > time.uptime }
        if isPaused { return onEnd(.failure(.unavailable)) }
        pool.submit(for: uid) { [self] in
            onEnd(render(source, wish, for: uid, isWanted: isWanted))
        }
    }

    public func forget(_ uid: UInt32) {
        let ended = state.withLockedValue { state in
            for (number, work) in state.working where work.uid == uid { state.working[number]?.isForgotten = true }
            let ended = state.idle.filter { $0.uid == uid }
            state.idle.removeAll { $0.uid == uid }
            return ended
        }
        for idle in ended { idle.worker.close() }
    }

    // MARK: One picture

    /// Blocks until it is made, or cannot be.
    private func render(
        _ source: ByteBuffer, _ wish: RenditionOptions, for uid: UInt32, isWanted: () -> Bool
    ) -> Result<ByteBuffer, RenditionFailure> {
        let number = state.withLockedValue { state in
            state.lastNumber &+= 1
            state.working[state.lastNumber] = Work(uid: uid)
            return state.lastNumber
        }
        defer { state.withLockedValue { _ = $0.working.removeValue(forKey: number) } }
        // Asked when ``forget(_:)`` already knows of it: what is purged behind this is in no worker that lives on.
        guard isWanted() else { return .failure(.unavailable) }
        let request = RenderRequest(source, wish, number: number)
        let limits = WorkerLimits(pixels: UInt32(clamping: wish.mostPixels))
        // An idle worker may have ended meanwhile, which says nothing of the picture.
        if let worker = takeIdle(uid, limits, for: number), let answer = ask(worker, request, source, wish, for: uid) {
            return answer
        }
        guard let worker = newWorker(limits, for: number) else { return .failure(.unavailable) }
        return ask(worker, request, source, wish, for: uid) ?? .failure(.badPicture)
    }

    /// Nil where the worker has ended, or says what cannot be.
    private func ask(
        _ worker: WorkerConnection, _ request: RenderRequest, _ source: ByteBuffer, _ wish: RenditionOptions,
        for uid: UInt32
    ) -> Result<ByteBuffer, RenditionFailure>? {
        do {
            let answer = try worker.ask(request, source, mostBytes: wish.mostBytes)
            keep(worker, uid, WorkerLimits(pixels: UInt32(clamping: wish.mostPixels)), of: request.number)
            return answer.map { .success($0) } ?? .failure(.badPicture)
        } catch {
            discard(worker, of: request.number)
            log.debug("a worker of the renderer has ended", metadata: ["uid": "\(uid)", "reason": "\(error)"])
            return nil
        }
    }

    private func takeIdle(_ uid: UInt32, _ limits: WorkerLimits, for number: UInt32) -> WorkerConnection? {
        let worker = state.withLockedValue { state -> WorkerConnection? in
            guard let index = state.idle.lastIndex(where: { $0.uid == uid && $0.limits == limits }) else { return nil }
            return state.idle.remove(at: index).worker
        }
        if let worker { use(worker, for: number) }
        return worker
    }

    /// From here on a shutdown ends what it does.
    private func use(_ worker: WorkerConnection, for number: UInt32) {
        let isShutDown = state.withLockedValue { state in
            state.working[number]?.worker = worker
            return state.isShutDown
        }
        if isShutDown { worker.interrupt() }
    }

    private func discard(_ worker: WorkerConnection, of number: UInt32) {
        state.withLockedValue { $0.working[number]?.worker = nil }
        worker.close()
    }

    private func keep(_ worker: WorkerConnection, _ uid: UInt32, _ limits: WorkerLimits, of number: UInt32) {
        let surplus = state.withLockedValue { state -> WorkerConnection? in
            defer { state.working[number]?.worker = nil }
            guard state.working[number]?.isForgotten == false else { return worker }
            if state.isShutDown { return worker }
            let end = time.uptime + Self.longestIdle
            state.idle.append(Idle(uid: uid, limits: limits, worker: worker, end: end))
            setTimer(&state)
            return state.idle.count > Self.mostIdle ? state.idle.removeFirst().worker : nil
        }
        surplus?.close()
    }

    /// Sets a timer for the connection that has waited longest, unless one is set.
    private func setTimer(_ state: inout State) {
        guard state.timer == nil, let first = state.idle.first else { return }
        state.timer = time.after(milliseconds: max(1, first.end - time.uptime)) { [self] in closeIdle() }
    }

    private func closeIdle() {
        let ended = state.withLockedValue { state in
            state.timer = nil
            let now = time.uptime
            let ended = state.idle.prefix { $0.end <= now }
            state.idle.removeFirst(ended.count)
            setTimer(&state)
            return ended
        }
        for idle in ended { idle.worker.close() }
    }

    private func newWorker(_ limits: WorkerLimits, for number: UInt32) -> WorkerConnection? {
        // Others that waited for their turn may have tried meanwhile.
        if state.withLockedValue({ $0.retryAt > time.uptime }) { return nil }
        do {
            let worker = try openWorker(limits, for: number)
            let wasAway = state.withLockedValue { state in
                defer { (state.failures, state.retryAt) = (0, 0) }
                return state.failures > 0
            }
            if wasAway { log.notice("the renderer is there again") }
            return worker
        } catch {
            let isFirst = state.withLockedValue { state in
                state.failures += 1
                state.retryAt = time.uptime + Self.backoff.ceiling(attempt: state.failures)
                return state.failures == 1 && !state.isShutDown
            }
            if isFirst {
                log.notice(
                    "there is no renderer: pictures are served in the size in which they come",
                    metadata: ["reason": "\(error)"])
            }
            return nil
        }
    }

    /// One that has greeted: should it end from then on, the picture did it.
    private func openWorker(_ limits: WorkerLimits, for number: UInt32) throws -> WorkerConnection {
        let worker = WorkerConnection(try link.open(), now: { [time] in time.uptime })
        use(worker, for: number)
        do {
            try worker.greet(limits)
            return worker
        } catch {
            discard(worker, of: number)
            throw error
        }
    }

    /// Ends what is being made, and closes what is open.
    package func shutdown() {
        let idle = state.withLockedValue { state in
            state.isShutDown = true
            for work in state.working.values { work.worker?.interrupt() }
            defer { (state.idle, state.timer) = ([], nil) }
            state.timer?.cancel()
            return state.idle
        }
        for idle in idle { idle.worker.close() }
    }
}

extension RenderRequest {
    fileprivate init(_ source: ByteBuffer, _ wish: RenditionOptions, number: UInt32) {
        self.init(
            length: source.readableBytes, number: number, side: wish.side,
            fit: wish.style.fit == .cover ? .cover : .contain,
            format: PictureFormat(rawValue: wish.style.format.rawValue) ?? .source)
    }
}
