import CLinux
import Dispatch
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

/// An event loop for Unix sockets: one thread that waits for descriptors and runs tasks.
///
/// Implements swift-nio's `EventLoop`, with promises and timers. Its sockets are ``Stream`` and ``Listener`` instead of
/// swift-nio's channels, which cost 6,700 instructions per request before the request is parsed.
///
/// Each round handles ready sockets first, then runs due tasks for at most ``maximumTaskTime``, so that tasks cannot
/// starve the sockets. After each of the two, it sends postponed output (``Stream/postponeSend()``).
///
/// A loop wakes other loops after the socket or task that gave them work. One read may bring many downloaded images,
/// and a client's loop woken by the first would find only that one.
public final class SocketLoop: EventLoop {
    private enum Phase {
        case running
        case ending
        case ended
    }

    private struct State {
        var tasks = LoopTasks()
        /// Whether the thread waits for descriptors, and needs a wakeup for a task.
        var isAsleep = false
        var phase = Phase.running
        var whenEnded: [@Sendable () -> Void] = []
    }

    private let state = NIOLockedValueBox(State())
    /// Held by a thread that runs a task in place of the ended loop.
    private let late = NIOLockedValueBox(())
    /// The thread that holds ``late``; nil if none does.
    private let lateThread = NIOLockedValueBox<pthread_t?>(nil)
    // Accessed on the loop's thread only, except for wakeups.
    nonisolated(unsafe) let poller: Poller
    private nonisolated(unsafe) let buffers: StreamBuffers
    /// Other loops to wake after the current socket or task.
    private nonisolated(unsafe) var loopsToWake: [SocketLoop] = []
    /// The current round, for budgets per round. On the loop only.
    public nonisolated(unsafe) let round = LoopRound()

    /// The maximum time of a round's tasks.
    static var maximumTaskTime: TimeAmount { .milliseconds(5) }

    /// Starts the loop's thread.
    /// - Parameter sentBuffers: receives the buffers that streams have sent; nil to free them.
    /// - Throws: ``IOError`` if epoll or eventfd fails; `SystemError` if the thread cannot be created.
    public init(named name: String = "event loop", sentBuffers: BufferPool? = nil) throws {
        poller = try Poller()
        buffers = StreamBuffers(sent: sentBuffers)
        try start(named: name)
    }

    // MARK: Sockets

    /// Makes a stream of a connected, non-blocking socket. On the loop only. Set its handler before anything else.
    /// - Parameter descriptor: owned by the stream; closed if this fails.
    /// - Throws: ``IOError`` if epoll fails.
    public func adopt(_ descriptor: CInt) throws -> Stream {
        preconditionInEventLoop()
        let stream = Stream(descriptor, poller: poller, buffers: buffers)
        do {
            try poller.add(descriptor, for: .readable, stream)
        } catch {
            stream.close()
            throw error
        }
        return stream
    }

    /// Watches a descriptor without owning it. On the loop only.
    /// - Parameter ready: called in each round with the reported events.
    /// - Throws: ``IOError`` if epoll fails.
    public func watch(_ descriptor: CInt, for events: Readiness, _ ready: @escaping (Readiness) -> Void) throws {
        preconditionInEventLoop()
        try poller.add(descriptor, for: events, PollClosure(ready))
    }

    /// Changes the events of a watched descriptor. On the loop only.
    public func watch(_ descriptor: CInt, for events: Readiness) throws {
        preconditionInEventLoop()
        try poller.change(descriptor, for: events)
    }

    /// Stops watching a descriptor. On the loop only.
    public func stopWatching(_ descriptor: CInt) {
        preconditionInEventLoop()
        poller.stopWatching(descriptor)
    }

    // MARK: Work

    public var inEventLoop: Bool {
        Self.current === self
            || lateThread.withLockedValue { thread in thread.map { pthread_equal($0, pthread_self()) != 0 } ?? false }
    }

    /// Runs `task` in the next round, after earlier tasks. Has no effect once the loop has ended.
    public func execute(_ task: @escaping @Sendable () -> Void) { update { $0.add(task) } }

    @discardableResult @preconcurrency
    public func scheduleTask<T>(in delay: TimeAmount, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        scheduleTask(deadline: .now() + delay, task)
    }

    @discardableResult @preconcurrency
    public func scheduleTask<T>(deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        let promise = makePromise(of: T.self)
        let timer: LoopTasks.Timer = { isDue in
            guard isDue else { return promise.fail(EventLoopError.shutdown) }
            // The result stays on the loop's thread.
            let onLoop = promise.assumeIsolatedUnsafeUnchecked()
            do { onLoop.succeed(try task()) } catch { promise.fail(error) }
        }
        guard let number = update({ $0.add(timer, at: deadline) }) else {
            runAsLoop { timer(false) }
            return Scheduled(promise: promise, cancellationTask: {})
        }
        return Scheduled(promise: promise) { self.state.withLockedValue { $0.tasks.cancel(number) } }
    }

    /// Changes the tasks. Wakes the loop if it waits: at once, or after the current socket or task if another loop calls
    /// this. Returns nil if the loop has ended.
    @discardableResult
    private func update<Value>(_ change: (inout LoopTasks) -> Value) -> Value? {
        let caller = Self.current
        let (value, isAsleep) = state.withLockedValue { state -> (Value?, Bool) in
            guard state.phase != .ended else { return (nil, false) }
            let isAsleep = state.isAsleep
            // Stays true if another loop calls this, which wakes this loop later. Any other thread may do so before.
            if caller == nil || caller === self { state.isAsleep = false }
            return (change(&state.tasks), isAsleep)
        }
        // The loop's own thread needs no wakeup: `isAsleep` may still be true while it dispatches sockets.
        guard isAsleep, caller !== self else { return value }
        if let caller { caller.wakeLater(self) } else { poller.wake() }
        return value
    }

    private func wakeLater(_ loop: SocketLoop) {
        if !loopsToWake.contains(where: { $0 === loop }) { loopsToWake.append(loop) }
    }

    private func wakeOthers() {
        guard !loopsToWake.isEmpty else { return }
        for loop in loopsToWake {
            let isAsleep = loop.state.withLockedValue { state in
                defer { state.isAsleep = false }
                return state.isAsleep
            }
            if isAsleep { loop.poller.wake() }
        }
        loopsToWake.removeAll(keepingCapacity: true)
    }

    private static let currentKey: pthread_key_t = {
        var key = pthread_key_t()
        let code = pthread_key_create(&key, nil)
        precondition(code == 0, "pthread_key_create: error \(code)")
        return key
    }()

    /// The loop whose thread calls this; nil on other threads.
    private static var current: SocketLoop? {
        pthread_getspecific(currentKey).map { Unmanaged.fromOpaque($0).takeUnretainedValue() }
    }

    /// Runs work as if on the ended loop: a promise can only be completed on its loop.
    private func runAsLoop(_ work: () -> Void) {
        if inEventLoop { return work() }
        late.withLockedValue { _ in
            lateThread.withLockedValue { $0 = pthread_self() }
            work()
            lateThread.withLockedValue { $0 = nil }
        }
    }

    // MARK: The thread

    private func start(named name: String) throws {
        let started = try startThread(named: name) {
            pthread_setspecific(Self.currentKey, Unmanaged.passUnretained(self).toOpaque())
            self.run()
        }
        pthread_detach(started)
    }

    private func run() {
        var now = NIODeadline.now()
        while let pause = fallAsleep(at: now) {
            let ready = poller.wait(for: pause.time)
            round.begin(at: .now())
            poller.dispatch(ready, done: wakeOthers)
            sendPostponed()
            now = runDueTasks()
            if !buffers.postponed.isEmpty {
                round.beginLap(at: now)
                sendPostponed()
                now = .now()
            }
        }
        end()
    }

    private func sendPostponed() {
        var index = 0
        while index < buffers.postponed.count {
            buffers.postponed[index].sendPostponed()
            index += 1
            wakeOthers()
        }
        buffers.postponed.removeAll(keepingCapacity: true)
    }

    /// The maximum time to wait for descriptors; nil for no limit.
    private struct Pause { let time: TimeAmount? }

    /// Returns nil if the loop has to end.
    private func fallAsleep(at now: NIODeadline) -> Pause? {
        // A closure released after its task may have given work to another loop.
        wakeOthers()
        return state.withLockedValue { state in
            guard state.phase == .running else { return nil }
            let pause = Pause(time: state.tasks.pause(from: now))
            state.isAsleep = pause.time != .zero
            return pause
        }
    }

    /// - Returns: the time after the last task.
    private func runDueTasks() -> NIODeadline {
        let begin = NIODeadline.now()
        var due = state.withLockedValue { state in
            state.isAsleep = false
            return state.tasks.removeDue(at: begin)
        }
        guard !due.isEmpty else { return begin }
        let end = begin + Self.maximumTaskTime
        var now = begin
        repeat {
            let item = due.removeFirst()
            // Otherwise the next task's account would be charged for a task that charges none.
            round.beginLap(at: now)
            if let work = state.withLockedValue({ $0.tasks.work(of: item) }) { work() }
            wakeOthers()
            now = .now()
        } while !due.isEmpty && now < end
        if !due.isEmpty { state.withLockedValue { $0.tasks.prepend(due) } }
        return now
    }

    // MARK: Shutdown

    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        end { queue.async { callback(nil) } }
    }

    /// Ends the loop: closes its sockets, runs queued tasks, and fails its timers.
    /// - Parameter report: called at the end, on any thread.
    public func end(_ report: @escaping @Sendable () -> Void) {
        let (hasEnded, mustWake) = state.withLockedValue { state in
            if state.phase == .ended { return (true, false) }
            state.phase = .ending
            state.whenEnded.append(report)
            defer { state.isAsleep = false }
            return (false, state.isAsleep)
        }
        if hasEnded { report() }
        if mustWake { poller.wake() }
    }

    var isEnding: Bool { state.withLockedValue { $0.phase != .running } }

    private func end() {
        repeat {
            // A new round renews budgets, so that work that waits for its next turn completes.
            round.begin(at: .now())
            // Includes sockets that the last tasks have added.
            poller.close()
            buffers.postponed = []
            wakeOthers()
        } while runRemainingTasks()
        pthread_setspecific(Self.currentKey, nil)
        wakeOthers()
        for report in state.withLockedValue({ state in
            defer { state.whenEnded = [] }
            return state.whenEnded
        }) {
            report()
        }
    }

    /// Runs the remaining tasks and fails the timers. Returns false, and stops accepting tasks, if there were none.
    private func runRemainingTasks() -> Bool {
        let (due, timers) = state.withLockedValue { state in
            let due = state.tasks.removeDue(at: .now()).compactMap { state.tasks.work(of: $0) }
            let timers = state.tasks.removeTimers()
            if due.isEmpty && timers.isEmpty { state.phase = .ended }
            return (due, timers)
        }
        for work in due { work() }
        for timer in timers { timer(false) }
        return !due.isEmpty || !timers.isEmpty
    }
}

/// The current round of a loop, which began after a wait for descriptors. Used on the loop only.
public final class LoopRound {
    public private(set) var number: UInt64 = 0
    public private(set) var began = NIODeadline.uptimeNanoseconds(0)
    private var lapBegan = NIODeadline.uptimeNanoseconds(0)

    public init() {}

    public func begin(at now: NIODeadline) {
        number &+= 1
        began = now
        lapBegan = now
    }

    /// Starts a new lap: the loop continues with other work.
    func beginLap(at now: NIODeadline) { lapBegan = now }

    /// The round's duration up to the start of the current lap.
    public var elapsed: TimeAmount { lapBegan - began }

    /// Ends the current lap and returns its duration. Reads the clock.
    public func endLap() -> TimeAmount {
        let now = NIODeadline.now()
        defer { lapBegan = now }
        return now - lapBegan
    }
}

/// Buffers shared by all streams of a loop, so that an idle stream holds no memory.
final class StreamBuffers {
    /// Borrowed by the handler. If it keeps the bytes, the next read gets a new buffer.
    var input = ByteBuffer()
    /// The replies of one sendmsg(2).
    let spans = UnsafeMutableBufferPointer<clinux_span>.allocate(capacity: 64)
    /// Streams whose output is sent later in this round.
    var postponed: ContiguousArray<Stream> = []
    /// Receives sent buffers.
    let sent: BufferPool?

    init(sent: BufferPool?) { self.sent = sent }

    /// Zeroes the input. If a handler kept it, the storage is not reused: it could not be wiped.
    func wipeInput() { if !input.wipeReadableBytes() { input = ByteBuffer() } }

    deinit { spans.deallocate() }
}
