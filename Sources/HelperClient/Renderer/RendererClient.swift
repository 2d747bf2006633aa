import CacheCore
import Glibc
import HelperProtocol
import ImageOptions
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Renders images in other sizes, each in a worker process that receives images of one uid only.
///
/// Each rendition blocks a thread of the pool, so the pool bounds how many are in progress.
public final class RendererClient: ImageRendering {
    private struct State {
        /// Connections without work, the longest idle first.
        var idle: [Idle] = []
        /// Closes the first idle connection when its time is over.
        var timer: (any Timer)?
        /// Renditions in progress, by the number of the request.
        var working: [UInt32: Work] = [:]
        var isShutDown = false
        var lastNumber: UInt32 = 0
    }

    private struct Work {
        let uid: UInt32
        /// Whether ``forget(_:)`` was called for the uid meanwhile; the worker is then closed afterwards.
        var isForgotten = false
        var worker: WorkerConnection?
    }

    private struct Idle {
        let uid: UInt32
        let limits: WorkerLimits
        let worker: WorkerConnection
        /// When the connection is closed: milliseconds of ``Timekeeping/uptime``.
        let end: Int64
    }

    private static var maximumIdle: Int { 16 }
    /// Milliseconds after which an idle connection is closed. The renderer then kills the worker.
    private static var idleTimeout: Int64 { 10_000 }

    private let supervisor: HelperSupervisor
    private let pool: any BlockingPool
    private let time: any Timekeeping
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    /// - Parameter pool: has a thread for each concurrent rendition, and distributes them among uids.
    package init(connector: any HelperConnector, pool: any BlockingPool, time: any Timekeeping, log: Logger) {
        // Without a renderer images are served in their source size, which is no error.
        supervisor = HelperSupervisor("renderer", connector: connector, failureLevel: .notice, log: log) { time.uptime }
        (self.pool, self.time, self.log) = (pool, time, log)
    }

    public func render(
        _ source: ByteBuffer, _ options: RenditionOptions, for uid: UInt32, isWanted: @escaping @Sendable () -> Bool,
        onEnd: @escaping @Sendable (Result<ByteBuffer, RenditionFailure>) -> Void
    ) {
        guard source.readableBytes <= RenderRequest.maximumImage else { return onEnd(.failure(.unreadableImage)) }
        guard supervisor.retryDelay == 0 else { return onEnd(.failure(.unavailable)) }
        pool.submit(for: uid) { [self] in
            onEnd(render(source, options, for: uid, isWanted: isWanted))
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

    private func render(
        _ source: ByteBuffer, _ options: RenditionOptions, for uid: UInt32, isWanted: () -> Bool
    ) -> Result<ByteBuffer, RenditionFailure> {
        let number = state.withLockedValue { state in
            state.lastNumber &+= 1
            state.working[state.lastNumber] = Work(uid: uid)
            return state.lastNumber
        }
        defer { state.withLockedValue { _ = $0.working.removeValue(forKey: number) } }
        // Checked after the request is registered: a later ``forget(_:)`` finds it, and closes its worker.
        guard isWanted() else { return .failure(.unavailable) }
        let request = RenderRequest(options, number: number)
        let limits = WorkerLimits(pixels: UInt32(clamping: options.mostPixels))
        // An idle worker may have ended for another reason than this image, so its failure is retried.
        if let worker = reuseIdle(uid, limits, for: number),
            let result = render(source, options, for: uid, request, worker)
        {
            return result
        }
        guard let worker = startWorker(limits, for: number) else { return .failure(.unavailable) }
        return render(source, options, for: uid, request, worker) ?? .failure(.unreadableImage)
    }

    /// Returns nil if the worker ended, or sent an invalid reply.
    private func render(
        _ source: ByteBuffer, _ options: RenditionOptions, for uid: UInt32, _ request: RenderRequest,
        _ worker: WorkerConnection
    ) -> Result<ByteBuffer, RenditionFailure>? {
        do {
            let rendition = try worker.render(request, source, maximumBytes: options.mostBytes)
            keepIdle(worker, uid, WorkerLimits(pixels: UInt32(clamping: options.mostPixels)), of: request.number)
            return rendition.map { .success($0) } ?? .failure(.unreadableImage)
        } catch {
            discard(worker, of: request.number)
            log.debug("worker of the renderer failed", metadata: ["uid": "\(uid)", "reason": "\(error)"])
            return nil
        }
    }

    private func reuseIdle(_ uid: UInt32, _ limits: WorkerLimits, for number: UInt32) -> WorkerConnection? {
        let worker = state.withLockedValue { state -> WorkerConnection? in
            guard let index = state.idle.lastIndex(where: { $0.uid == uid && $0.limits == limits }) else { return nil }
            return state.idle.remove(at: index).worker
        }
        if let worker { assign(worker, to: number) }
        return worker
    }

    /// Registers the worker of a request, so that ``shutdown()`` interrupts it.
    private func assign(_ worker: WorkerConnection, to number: UInt32) {
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

    private func keepIdle(_ worker: WorkerConnection, _ uid: UInt32, _ limits: WorkerLimits, of number: UInt32) {
        let surplus = state.withLockedValue { state -> WorkerConnection? in
            defer { state.working[number]?.worker = nil }
            guard state.working[number]?.isForgotten == false else { return worker }
            if state.isShutDown { return worker }
            let end = time.uptime + Self.idleTimeout
            state.idle.append(Idle(uid: uid, limits: limits, worker: worker, end: end))
            setTimer(&state)
            return state.idle.count > Self.maximumIdle ? state.idle.removeFirst().worker : nil
        }
        surplus?.close()
    }

    /// Starts a timer for the longest idle connection, unless one runs.
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

    /// Returns a worker that has greeted, so that its later end is the fault of the image; nil if there is no renderer.
    private func startWorker(_ limits: WorkerLimits, for number: UInt32) -> WorkerConnection? {
        // Another thread may have failed meanwhile.
        guard supervisor.retryDelay == 0 else { return nil }
        let descriptor: CInt
        do throws(SystemError) { descriptor = try supervisor.open() } catch { return nil }
        let worker = WorkerConnection(descriptor) { [time] in time.uptime }
        assign(worker, to: number)
        do {
            try worker.greet(limits)
            supervisor.started()
            return worker
        } catch {
            discard(worker, of: number)
            if !state.withLockedValue({ $0.isShutDown }) { supervisor.failed("\(error)") }
            return nil
        }
    }

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
    fileprivate init(_ options: RenditionOptions, number: UInt32) {
        self.init(
            number: number, side: UInt16(clamping: options.size.pixels), fit: options.size.fit,
            output: .file(options.size.format))
    }
}
