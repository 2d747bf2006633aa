import CCurl
import Logging
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

/// Where those who want downloads and the thread that makes them meet.
///
/// One lock over the queue and over what has yet to be told to the thread. It is held for a few lines at a time, never while
/// libcurl runs or an owner is told anything; so that starting and cancelling take microseconds, whatever the thread is doing.
final class DownloadScheduler: Sendable {
    /// What the thread is to do next.
    struct Work {
        var begin: [DownloadTicket]
        var cancelled: [DownloadTicket]
        var expired: [DownloadTicket]
        /// Those whose breaker has opened since they began to wait.
        var rejected: [(ticket: DownloadTicket, why: CircuitBreaker.Rejection)]
        /// To be called when the rest is done.
        var signs: [@Sendable () -> Void]
        var nextDeadline: NIODeadline?
        var configuration: FetcherConfiguration
    }

    /// What a download added to the figures.
    struct Cost {
        var requests = 0
        var bytes = 0
        var refusedAddresses = 0
        var answers = FetcherStatistics.Answers()
    }

    struct State {
        var phase = Phase.idle
        var configuration: FetcherConfiguration
        var queue: DownloadQueue
        var statistics = FetcherStatistics()
        var breakers = CircuitBreakers()
        var lastID: UInt64 = 0
        /// Those that wait, by id.
        var waiting: [UInt64: DownloadTicket] = [:]
        /// Those that left the queue and that the thread has not yet taken.
        var begin: [DownloadTicket] = []
        /// Those the thread has to let go of.
        var cancelled: [DownloadTicket] = []
        /// Those that left the queue because their breaker has opened, to be told so by the thread.
        var rejected: [(ticket: DownloadTicket, why: CircuitBreaker.Rejection)] = []
        /// Of those who want to know whether the thread comes round.
        var signs: [@Sendable () -> Void] = []
        /// Wakes the thread up.
        var wake: (@Sendable () -> Void)?
        /// Whether there is something that the thread has not yet looked at.
        var isCalled = false
        /// Whether the thread sleeps, or is about to: then it takes a wakeup to call it.
        var isAsleep = false
        /// When the thread looks by itself for those whose time is up.
        var nextLook = NIODeadline.distantFuture
    }

    enum Phase {
        case idle
        case open
        case stopping
        case closed
    }

    let state: NIOLockedValueBox<State>

    /// For what a uid may bring about all the time.
    let uidLog: UIDLog

    init(configuration: FetcherConfiguration, log: Logger) {
        uidLog = UIDLog(log)
        state = NIOLockedValueBox(
            State(configuration: configuration, queue: DownloadQueue(limits: configuration.queueLimits)))
    }

    // MARK: For those who want downloads

    func start(
        _ download: Download, at now: NIODeadline, onEnd: @escaping @Sendable (DownloadOutcome) -> Void
    ) throws(DownloadFailure) -> DownloadTicket {
        let host = HostKey(download)
        let result: Result<DownloadTicket, DownloadFailure> = state.withLockedValue { state in
            guard state.phase == .open else { return .failure(.shuttingDown) }
            if let why = state.breakers.rejection(of: host, for: download.uid, at: now) {
                state.statistics.countRejected(of: host.origin)
                return .failure(.rejected(host.authority, why))
            }
            state.lastID += 1
            let entry = DownloadQueue.Entry(
                id: state.lastID, uid: download.uid, origin: download.origin.name,
                connections: download.origin.connections,
                deadline: now + .milliseconds(download.origin.timeout))
            do {
                try state.queue.add(entry)
            } catch {
                let sentence = "\(state.configuration.queuePerUID) downloads of this uid wait already: try again later"
                state.statistics.failures.busy += 1
                return .failure(.busy(sentence))
            }
            let ticket = DownloadTicket(entry: entry, host: host, download: download, scheduler: self, onEnd: onEnd)
            state.waiting[entry.id] = ticket
            // One that has to wait is no reason to wake the thread, unless its time is up before the thread would look.
            if state.admit() || entry.deadline < state.nextLook { state.call() }
            return .success(ticket)
        }
        return try result.get()
    }

    /// Whether any download is under way or waits.
    var isBusy: Bool { state.withLockedValue { $0.queue.active + $0.queue.waiting > 0 } }

    func cancel(_ ticket: DownloadTicket) {
        state.withLockedValue { state in
            guard state.phase != .closed else { return }
            state.statistics.cancelled += 1
            if state.queue.remove(ticket.entry) {
                state.waiting[ticket.entry.id] = nil
            } else {
                state.cancelled.append(ticket)
                state.call()
            }
        }
    }

    /// Has the thread call `sign`, soon; at once where there is none.
    func whenAlive(_ sign: @escaping @Sendable () -> Void) {
        let isRunning = state.withLockedValue { state in
            guard state.phase == .open else { return false }
            state.signs.append(sign)
            state.call()
            return true
        }
        if !isRunning { sign() }
    }

    func update(_ configuration: FetcherConfiguration) {
        state.withLockedValue { state in
            state.configuration = configuration
            state.queue.limits = configuration.queueLimits
            state.admit()
            state.call()
        }
    }

    // MARK: For the thread

    /// From now on downloads are taken. Answers false when that was so before, or will not be again.
    /// - Parameter wake: wakes the thread up, should it sleep.
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
            state.isAsleep = false
            let expired = state.queue.expire(at: now).compactMap { state.waiting.removeValue(forKey: $0.id) }
            let timedOut = DownloadOutcome.failed(.timedOut(""))
            for ticket in expired { state.statistics.count(timedOut, of: ticket.entry.origin) }
            defer {
                state.begin = []
                state.rejected = []
                state.cancelled = []
                state.signs = []
            }
            let nextDeadline = state.queue.nextDeadline
            state.nextLook = nextDeadline ?? .distantFuture
            return Work(
                begin: state.begin, cancelled: state.cancelled, expired: expired, rejected: state.rejected,
                signs: state.signs, nextDeadline: nextDeadline, configuration: state.configuration)
        }
    }

    /// Whether the thread may sleep; not while there is something to look at. From then on it is woken up for that.
    func maySleep() -> Bool {
        state.withLockedValue { state in
            state.isAsleep = !state.isCalled
            return state.isAsleep
        }
    }

    /// Gives back the room of a download that has begun. `outcome` is nil for one that was cancelled.
    func finish(_ ticket: DownloadTicket, _ outcome: DownloadOutcome?, _ cost: Cost) {
        state.withLockedValue { state in
            state.statistics.count(cost, of: ticket.entry.origin)
            // A cancel that came while the outcome was made has been counted by itself.
            if let outcome, !ticket.isCancelled { state.statistics.count(outcome, of: ticket.entry.origin) }
            state.finish(ticket)
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

    /// Takes no downloads any more and rings no more; gives out those that the thread has never begun.
    func close() -> [DownloadTicket] {
        let (rest, signs) = state.withLockedValue { state in
            state.phase = .closed
            defer { state.signs = [] }
            state.wake = nil
            let queued = Array(state.waiting.values) + state.begin
            for ticket in queued where !state.queue.remove(ticket.entry) { state.queue.finish(ticket.entry) }
            let rest = queued + state.rejected.map(\.ticket)
            state.waiting = [:]
            state.rejected = []
            state.begin = []
            state.cancelled = []
            state.statistics.failures.shuttingDown += queued.count
            return (rest, state.signs)
        }
        for sign in signs { sign() }
        return rest.sorted { $0.entry.id < $1.entry.id }
    }
}

extension DownloadScheduler.State {
    /// Moves what may begin out of the queue. Returns whether anything may.
    @discardableResult
    fileprivate mutating func admit() -> Bool {
        while let entry = queue.next() {
            if let ticket = waiting.removeValue(forKey: entry.id) { begin.append(ticket) }
        }
        return !begin.isEmpty
    }

    /// Gives back the room of a download that has begun; who waited for it may begin.
    mutating func finish(_ ticket: DownloadTicket) {
        queue.finish(ticket.entry)
        if admit() { call() }
    }

    /// Has the thread look at what there is to do. Mostly it is awake and needs no wakeup, which takes both sides a system call.
    mutating func call() {
        guard !isCalled else { return }
        isCalled = true
        if isAsleep { wake?() }
    }
}

/// Wakes the thread out of curl_multi_poll.
///
/// Unchecked, because a pointer is not Sendable: but curl_multi_wakeup is the one function of a multi handle that may be called from
/// any thread, and nothing else is done with this one. The scheduler forgets the wakeup before the handle is cleaned up.
struct LoopWakeup: @unchecked Sendable {
    private let multi: UnsafeMutableRawPointer

    init(_ multi: UnsafeMutableRawPointer) {
        self.multi = multi
    }

    func wake() {
        // It fails only where a pipe cannot be written; a full one wakes as well.
        _ = curl_multi_wakeup(multi)
    }
}
