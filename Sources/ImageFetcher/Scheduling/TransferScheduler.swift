import CCurl
import CacheCore
import HelperProtocol
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Where those who want downloads and tokens and the thread that gets them meet.
///
/// One lock over the queues and over what has yet to be told to the thread. It is never held while libcurl runs or an
/// owner is told anything: starting and cancelling take microseconds, whatever the thread is doing.
final class TransferScheduler: Sendable {
    /// What the thread is to do next.
    struct Work {
        var configuration: FetcherConfiguration
        /// Those that have left the queue.
        var begin: [TransferHandle] = []
        /// Those to let go of.
        var cancelled: [TransferHandle] = []
        /// Those that have waited too long.
        var expired: [TransferHandle] = []
        /// Those whose breaker has opened since they began to wait.
        var rejected: [(handle: TransferHandle, why: CircuitBreaker.Rejection)] = []
        /// Of those who want to know whether the thread comes round: to be called when the rest is done.
        var signs: [@Sendable () -> Void] = []
        /// When to look for those that have waited too long.
        var nextDeadline: NIODeadline?
    }

    struct State {
        var phase = Phase.idle
        /// What the thread has not yet taken.
        var work: Work
        /// One for each kind; by ``TransferKind``.
        var queues: [TransferQueue]
        var statistics = FetcherStatistics()
        var breakers = CircuitBreakers()
        var lastID: UInt64 = 0
        /// Those that wait, by id.
        var waiting: [UInt64: TransferHandle] = [:]
        /// Has the thread call ``TransferScheduler/takeWork(at:)``, soon.
        var wake: (@Sendable () -> Void)?
        /// Whether the thread has been called, and has not come yet.
        var isCalled = false
        /// When the thread looks by itself for those whose time is up.
        var nextLook = NIODeadline.distantFuture
    }

    enum Phase {
        case idle, open, stopping, closed
    }

    let state: NIOLockedValueBox<State>

    /// For what a uid may bring about all the time.
    let uidLog: UIDLog

    init(configuration: FetcherConfiguration, log: Logger) {
        uidLog = UIDLog(log)
        let queues = TransferKind.allCases.map { TransferQueue(limits: configuration.queueLimits($0)) }
        state = NIOLockedValueBox(State(work: Work(configuration: configuration), queues: queues))
    }

    // MARK: For those who want something

    func start(
        _ job: TransferJob, at now: NIODeadline, onEnd: @escaping @Sendable (TransferOutcome) -> Void
    ) throws(TransferFailure) -> TransferHandle {
        let (host, kind) = (job.host, job.kind)
        let result: Result<TransferHandle, TransferFailure> = state.withLockedValue { state in
            guard state.phase == .open else { return .failure(.shuttingDown) }
            func refused(_ failure: TransferFailure) -> Result<TransferHandle, TransferFailure> {
                state.count(of: job) { $0.count(.failed(failure)) }
                return .failure(failure)
            }
            if let why = state.breakers.rejection(of: host, for: job.uid, at: now) {
                return refused(.rejected(host, why))
            }
            state.lastID += 1
            let entry = TransferQueue.Entry(
                id: state.lastID, uid: job.uid, host: host, connections: job.mostOfOrigin, timeout: job.timeout,
                deadline: now + .milliseconds(job.timeout))
            do {
                try state.queues[kind.rawValue].add(entry)
            } catch {
                let waiting = state.queues[kind.rawValue].limits.waitingPerUID
                return refused(.busy("\(waiting) \(kind.name) of this uid wait already: try again later"))
            }
            let handle = TransferHandle(entry: entry, job: job, scheduler: self, onEnd: onEnd)
            state.waiting[entry.id] = handle
            // One that has to wait is no reason to wake the thread, unless its time is up before the thread would look.
            if state.admit() || entry.deadline < state.nextLook { state.call() }
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
                state.call()
            }
        }
    }

    /// Has the thread call `sign`, soon; at once where there is none.
    func whenAlive(_ sign: @escaping @Sendable () -> Void) {
        let isRunning = state.withLockedValue { state in
            guard state.phase == .open else { return false }
            state.work.signs.append(sign)
            state.call()
            return true
        }
        if !isRunning { sign() }
    }

    func update(_ configuration: FetcherConfiguration) {
        state.withLockedValue { state in
            state.work.configuration = configuration
            for kind in TransferKind.allCases {
                state.queues[kind.rawValue].limits = configuration.queueLimits(kind)
            }
            state.admit()
            state.call()
        }
    }

    var configuration: FetcherConfiguration { state.withLockedValue { $0.work.configuration } }

    // MARK: For the thread

    /// From now on jobs are taken. Answers false when that was so before, or will not be again.
    /// - Parameter wake: has the thread call ``takeWork(at:)``, soon.
    func open(wake: @escaping @Sendable () -> Void) -> Bool {
        state.withLockedValue { state in
            guard state.phase == .idle else { return false }
            state.phase = .open
            state.wake = wake
            return true
        }
    }

    /// Takes all that there is to do; nil when the thread is to end, and then ``close()`` gives out what is left.
    func takeWork(at now: NIODeadline) -> Work? {
        state.withLockedValue { state in
            guard state.phase != .stopping else { return nil }
            state.isCalled = false
            let expired = state.queues.indices.flatMap { state.queues[$0].expire(at: now) }
                .compactMap { state.waiting.removeValue(forKey: $0.id) }
            for handle in expired { state.count(of: handle.job) { $0.count(.failed(.timedOut(""))) } }
            defer { state.work = Work(configuration: state.work.configuration) }
            state.work.expired = expired
            state.work.nextDeadline = state.queues.compactMap(\.nextDeadline).min()
            state.nextLook = state.work.nextDeadline ?? .distantFuture
            return state.work
        }
    }

    /// Gives back the room of a transfer that has begun. `outcome` is nil for one that was cancelled.
    func finish(_ handle: TransferHandle, _ outcome: TransferOutcome?, _ counts: FetcherStatistics.Counts = .init()) {
        state.withLockedValue { state in
            state.count(of: handle.job) { $0 += counts }
            // A cancel that came while the outcome was made has been counted by itself.
            if let outcome, !handle.isCancelled { state.count(of: handle.job) { $0.count(outcome) } }
            state.queues[handle.job.kind.rawValue].finish(handle.entry)
            // Who waited for it may begin.
            if state.admit() { state.call() }
        }
    }

    /// Has the thread end, soon.
    func stop() {
        state.withLockedValue { state in
            switch state.phase {
            case .idle: state.phase = .closed
            case .open: state.phase = .stopping
            case .stopping, .closed: return
            }
            state.call()
        }
    }

    /// Takes no jobs any more and wakes nobody any more; gives out those that the thread has never begun.
    func close() -> [TransferHandle] {
        let (rest, signs) = state.withLockedValue { state in
            state.phase = .closed
            state.wake = nil
            let queued = Array(state.waiting.values) + state.work.begin
            for handle in queued {
                let kind = handle.job.kind.rawValue
                if !state.queues[kind].remove(handle.entry) { state.queues[kind].finish(handle.entry) }
            }
            state.waiting = [:]
            defer { state.work = Work(configuration: state.work.configuration) }
            return (queued + state.work.rejected.map(\.handle), state.work.signs)
        }
        for sign in signs { sign() }
        return rest.sorted { $0.entry.id < $1.entry.id }
    }
}

extension TransferScheduler.State {
    var downloads: TransferQueue { queues[TransferKind.download.rawValue] }

    /// The figures are those of downloads.
    mutating func count(of job: TransferJob, _ count: (inout FetcherStatistics.Counts) -> Void) {
        if job.kind == .download { count(&statistics.origins[job.origin.name, default: .init()].counts) }
    }

    /// Moves what may begin out of the queues. Returns whether anything may.
    @discardableResult
    fileprivate mutating func admit() -> Bool {
        for index in queues.indices {
            while let entry = queues[index].next() {
                if let handle = waiting.removeValue(forKey: entry.id) { work.begin.append(handle) }
            }
        }
        return !work.begin.isEmpty
    }

    /// Has the thread look at what there is to do; once for all that comes until it does.
    mutating func call() {
        guard !isCalled else { return }
        isCalled = true
        wake?()
    }
}
