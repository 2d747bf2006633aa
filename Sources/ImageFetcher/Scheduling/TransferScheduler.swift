import CCurl
import CacheCore
import HelperProtocol
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Passes downloads and token requests from their callers to the fetcher's thread.
///
/// ``start(_:at:onEnd:)`` queues a transfer, moves all that may begin to the work, and calls `wake`, which makes the
/// thread call `TransferLoop.fetchWork()` and so ``fetchWork(at:)``: ``CurlImageFetcher/start()`` connects the two.
///
/// One lock protects the queues and the work that the thread has not fetched yet. It is never held while libcurl runs
/// or a callback is called, so starting and cancelling take microseconds.
final class TransferScheduler: Sendable {
    struct Work {
        var settings: FetcherSettings
        /// Transfers that have left the queue.
        var begin: [TransferHandle] = []
        /// Transfers to release.
        var cancelled: [TransferHandle] = []
        var expired: [TransferHandle] = []
        /// Transfers whose circuit breaker has opened while they waited.
        var rejected: [(handle: TransferHandle, reason: CircuitBreaker.Rejection)] = []
        /// Callbacks that show that the thread makes progress, called last.
        var livenessCallbacks: [@Sendable () -> Void] = []
        /// When the next waiting transfer expires.
        var nextDeadline: NIODeadline?
    }

    struct State {
        var phase = Phase.idle
        var work: Work
        /// One queue for each ``TransferKind``.
        var queues: [TransferQueue]
        var statistics = FetcherStatistics()
        var breakers = CircuitBreakers()
        var lastID: UInt64 = 0
        var waiting: [UInt64: TransferHandle] = [:]
        var wake: (@Sendable () -> Void)?
        /// Whether the thread was woken and has not fetched its work yet.
        var isWoken = false
        var nextExpiry = NIODeadline.distantFuture
    }

    enum Phase {
        case idle, open, stopping, closed
    }

    let state: NIOLockedValueBox<State>
    let accountLog: AccountLog

    let environment: FetcherEnvironment

    init(settings: FetcherSettings, environment: FetcherEnvironment, log: Logger) {
        self.environment = environment
        accountLog = AccountLog(log)
        let queues = TransferKind.allCases.map { TransferQueue(limits: settings.queueLimits($0)) }
        state = NIOLockedValueBox(State(work: Work(settings: settings), queues: queues))
    }

    // MARK: For callers

    func start(
        _ job: TransferJob, at now: NIODeadline, onEnd: @escaping @Sendable (TransferOutcome) -> Void
    ) throws(FetchFailure) -> TransferHandle {
        let (host, kind) = (job.host, job.kind)
        let result: Result<TransferHandle, FetchFailure> = state.withLockedValue { state in
            guard state.phase == .open else { return .failure(.shuttingDown) }
            func refused(_ failure: FetchFailure) -> Result<TransferHandle, FetchFailure> {
                state.count(of: job) { $0.count(.failed(failure)) }
                return .failure(failure)
            }
            if let rejection = state.breakers.rejection(of: host, for: job.account, at: now) {
                return refused(.rejected(host, rejection))
            }
            state.lastID += 1
            let entry = TransferQueue.Entry(
                id: state.lastID, account: job.account, host: host, connections: job.originLimit, timeout: job.timeout,
                deadline: now + .milliseconds(job.timeout))
            do {
                try state.queues[kind.rawValue].add(entry)
            } catch {
                let limit = state.queues[kind.rawValue].limits.waitingPerAccount
                let reason =
                    switch kind {
                    case .download: "limits.queue-per-uid: \(limit) downloads of this account are queued"
                    case .token:
                        "limits.downloads-per-uid + limits.queue-per-uid: \(limit) token requests of this account are "
                            + "queued or active"
                    }
                return refused(.busy("\(reason); retry later"))
            }
            let handle = TransferHandle(entry: entry, job: job, scheduler: self, onEnd: onEnd)
            state.waiting[entry.id] = handle
            // A transfer that has to wait does not wake the thread, unless it expires before the thread's timer fires.
            if state.admit() || entry.deadline < state.nextExpiry { state.wakeThread() }
            return .success(handle)
        }
        return try result.get()
    }

    func cancel(_ handle: TransferHandle) {
        state.withLockedValue { state in
            guard state.phase != .closed else { return }
            state.count(of: handle.job) { $0[.cancelled] += 1 }
            if state.queues[handle.job.kind.rawValue].remove(handle.entry) {
                state.waiting[handle.entry.id] = nil
            } else {
                state.work.cancelled.append(handle)
                state.wakeThread()
            }
        }
    }

    /// Makes the thread call `work`; calls it at once if the thread is not running.
    func callOnLoop(_ work: @escaping @Sendable () -> Void) {
        let isRunning = state.withLockedValue { state in
            guard state.phase == .open else { return false }
            state.work.livenessCallbacks.append(work)
            state.wakeThread()
            return true
        }
        if !isRunning { work() }
    }

    func update(_ settings: FetcherSettings) {
        state.withLockedValue { state in
            state.work.settings = settings
            for kind in TransferKind.allCases {
                state.queues[kind.rawValue].limits = settings.queueLimits(kind)
            }
            state.admit()
            state.wakeThread()
        }
    }

    var settings: FetcherSettings { state.withLockedValue { $0.work.settings } }

    // MARK: For the fetcher's thread

    /// Accepts transfers from now on. Returns false if it was opened before.
    /// - Parameter wake: makes the thread call ``fetchWork(at:)``.
    func open(wake: @escaping @Sendable () -> Void) -> Bool {
        state.withLockedValue { state in
            guard state.phase == .idle else { return false }
            state.phase = .open
            state.wake = wake
            return true
        }
    }

    /// Removes and returns all work; nil if the thread must end. It then calls ``close()``.
    func fetchWork(at now: NIODeadline) -> Work? {
        state.withLockedValue { state in
            guard state.phase != .stopping else { return nil }
            state.isWoken = false
            let expired = state.queues.indices.flatMap { state.queues[$0].expire(at: now) }
                .compactMap { state.waiting.removeValue(forKey: $0.id) }
            for handle in expired { state.count(of: handle.job) { $0.count(.failed(.timedOut(""))) } }
            defer { state.work = Work(settings: state.work.settings) }
            state.work.expired = expired
            state.work.nextDeadline = state.queues.compactMap(\.nextDeadline).min()
            state.nextExpiry = state.work.nextDeadline ?? .distantFuture
            return state.work
        }
    }

    /// Lets another transfer begin instead of one that has ended. `outcome` is nil if it was cancelled.
    func finish(_ handle: TransferHandle, _ outcome: TransferOutcome?, _ counts: FetcherStatistics.Counts = .init()) {
        state.withLockedValue { state in
            state.count(of: handle.job) { $0 += counts }
            // A cancellation has been counted already.
            if case .download(let outcome)? = outcome, !handle.isCancelled {
                state.count(of: handle.job) { $0.count(outcome) }
            }
            state.queues[handle.job.kind.rawValue].finish(handle.entry)
            if state.admit() { state.wakeThread() }
        }
    }

    func stop() {
        state.withLockedValue { state in
            switch state.phase {
            case .idle: state.phase = .closed
            case .open: state.phase = .stopping
            case .stopping, .closed: return
            }
            state.wakeThread()
        }
    }

    /// Rejects later transfers. Returns those that the thread has not begun.
    func close() -> [TransferHandle] {
        let (rest, callbacks) = state.withLockedValue { state in
            state.phase = .closed
            state.wake = nil
            let queued = Array(state.waiting.values) + state.work.begin
            for handle in queued {
                let kind = handle.job.kind.rawValue
                if !state.queues[kind].remove(handle.entry) { state.queues[kind].finish(handle.entry) }
            }
            state.waiting = [:]
            defer { state.work = Work(settings: state.work.settings) }
            return (queued + state.work.rejected.map(\.handle), state.work.livenessCallbacks)
        }
        for callback in callbacks { callback() }
        return rest.sorted { $0.entry.id < $1.entry.id }
    }
}

extension TransferScheduler.State {
    var downloads: TransferQueue { queues[TransferKind.download.rawValue] }

    /// Counts downloads only.
    mutating func count(of job: TransferJob, _ count: (inout FetcherStatistics.Counts) -> Void) {
        if job.kind == .download { count(&statistics.origins[job.origin.name, default: .init()].counts) }
    }

    /// Moves transfers that may begin from the queues to the work. Returns whether there are any.
    @discardableResult
    fileprivate mutating func admit() -> Bool {
        for index in queues.indices {
            while let entry = queues[index].next() {
                if let handle = waiting.removeValue(forKey: entry.id) { work.begin.append(handle) }
            }
        }
        return !work.begin.isEmpty
    }

    /// Wakes the thread, unless it was woken and has not fetched its work yet.
    mutating func wakeThread() {
        guard !isWoken else { return }
        isWoken = true
        wake?()
    }
}
