import CLinux
import Dispatch
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

/// An event loop for Unix sockets: one thread that waits for its descriptors and does what it is told.
///
/// To swift-nio it is an event loop like any other, with its promises and timers. Its sockets are not swift-nio's
/// channels but ``Stream`` and ``Listener``: a request in a channel takes 6,700 instructions before anybody has looked
/// at it.
///
/// Each round looks at the sockets first, then does what is due, but not for longer than ``longestRound``: however much
/// there is to do, the sockets get their turn.
public final class SocketLoop: EventLoop {
    private enum Phase {
        case running
        case ending
        case ended
    }

    private struct State {
        var tasks = LoopTasks()
        /// Waits for descriptors, and has to be woken for anything else.
        var isAsleep = false
        var phase = Phase.running
        var whenEnded: [@Sendable () -> Void] = []
    }

    private let state = NIOLockedValueBox(State())
    private let thread = NIOLockedValueBox<pthread_t?>(nil)
    /// Held by whoever stands in for the thread.
    private let late = NIOLockedValueBox(())
    // Touched on the loop's thread alone, but for its waking.
    nonisolated(unsafe) let poller: Poller
    private nonisolated(unsafe) let buffers: StreamBuffers
    /// For what is shared out anew in each round. On the loop only.
    public nonisolated(unsafe) let round = LoopRound()

    /// After which the sockets are looked at, however much there is to do.
    static var longestRound: TimeAmount { .milliseconds(5) }

    /// Starts the loop's thread.
    /// - Parameter name: of the thread; 15 characters at most.
    /// - Throws: ``IOError`` if the system does not give what it waits with, two descriptors and memory of its own for
    ///   them; `SystemError` if there is no thread to be had.
    public init(named name: String = "sockets") throws {
        poller = try Poller()
        buffers = StreamBuffers()
        try start(named: name)
    }

    // MARK: Sockets

    /// Makes a connected socket, which does not block, a stream of this loop. On the loop only. Give it its handler
    /// before anything else.
    /// - Parameter descriptor: is the stream's from now on, and is closed should this fail.
    /// - Throws: ``IOError`` if the kernel will not watch it.
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

    /// Watches a descriptor that is somebody else's, and stays so. On the loop only.
    /// - Parameter ready: told in each round what it is ready for.
    /// - Throws: ``IOError`` if the kernel will not watch it.
    public func watch(_ descriptor: CInt, for events: Readiness, _ ready: @escaping (Readiness) -> Void) throws {
        preconditionInEventLoop()
        try poller.add(descriptor, for: events, PollClosure(ready))
    }

    /// Watches for something else a descriptor that is watched already. On the loop only.
    public func watch(_ descriptor: CInt, for events: Readiness) throws {
        preconditionInEventLoop()
        try poller.change(descriptor, for: events)
    }

    /// Watches a descriptor no more that may stay open. On the loop only.
    public func stopWatching(_ descriptor: CInt) {
        preconditionInEventLoop()
        poller.stopWatching(descriptor)
    }

    // MARK: Work

    public var inEventLoop: Bool {
        thread.withLockedValue { thread in thread.map { pthread_equal($0, pthread_self()) != 0 } ?? false }
    }

    /// Does `task` in the next round, behind what was there before it. Once the loop has ended nothing happens.
    public func execute(_ task: @escaping @Sendable () -> Void) { tell { $0.add(task) } }

    @discardableResult @preconcurrency
    public func scheduleTask<T>(in delay: TimeAmount, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        scheduleTask(deadline: .now() + delay, task)
    }

    @discardableResult @preconcurrency
    public func scheduleTask<T>(deadline: NIODeadline, _ task: @escaping @Sendable () throws -> T) -> Scheduled<T> {
        let promise = makePromise(of: T.self)
        let timer: LoopTasks.Timer = { isDue in
            guard isDue else { return promise.fail(EventLoopError.shutdown) }
            // What it returns does not leave the loop's thread on the way.
            let onLoop = promise.assumeIsolatedUnsafeUnchecked()
            do { onLoop.succeed(try task()) } catch { promise.fail(error) }
        }
        guard let number = tell({ $0.add(timer, at: deadline) }) else {
            standIn { timer(false) }
            return Scheduled(promise: promise, cancellationTask: {})
        }
        return Scheduled(promise: promise) { self.state.withLockedValue { $0.tasks.cancel(number) } }
    }

    /// Changes what there is to do, and wakes the loop if it sleeps. nil if it has ended.
    @discardableResult
    private func tell<Value>(_ change: (inout LoopTasks) -> Value) -> Value? {
        let (value, mustWake) = state.withLockedValue { state -> (Value?, Bool) in
            guard state.phase != .ended else { return (nil, false) }
            defer { state.isAsleep = false }
            return (change(&state.tasks), state.isAsleep)
        }
        // On its own thread it does not sleep, whatever it has written down.
        if mustWake && !inEventLoop { poller.wake() }
        return value
    }

    /// Does something in place of the thread that has ended: a promise can only be kept, or broken, on its loop.
    private func standIn(_ work: () -> Void) {
        if inEventLoop { return work() }
        late.withLockedValue { _ in
            thread.withLockedValue { $0 = pthread_self() }
            work()
            thread.withLockedValue { $0 = nil }
        }
    }

    // MARK: The thread

    private func start(named name: String) throws {
        let started = try startThread(named: name) {
            self.thread.withLockedValue { $0 = pthread_self() }
            self.run()
        }
        pthread_detach(started)
    }

    private func run() {
        var now = NIODeadline.now()
        while let pause = fallAsleep(at: now) {
            let ready = poller.wait(for: pause.time)
            round.begin(at: .now())
            poller.tell(ready)
            now = wakeUpAndWork()
        }
        end()
    }

    /// How long to wait for the sockets at most: until something comes if nil.
    private struct Pause { let time: TimeAmount? }

    /// Nil if the loop is to end.
    private func fallAsleep(at now: NIODeadline) -> Pause? {
        state.withLockedValue { state in
            guard state.phase == .running else { return nil }
            let pause = Pause(time: state.tasks.pause(from: now))
            state.isAsleep = pause.time != .zero
            return pause
        }
    }

    /// - Returns: the time behind it.
    private func wakeUpAndWork() -> NIODeadline {
        let begin = NIODeadline.now()
        var due = state.withLockedValue { state in
            state.isAsleep = false
            return state.tasks.takeDue(at: begin)
        }
        guard !due.isEmpty else { return begin }
        let end = begin + Self.longestRound
        var now = begin
        repeat {
            let item = due.removeFirst()
            // What a task takes that nobody counts is not the next one's.
            round.beginLap(at: now)
            if let work = state.withLockedValue({ $0.tasks.work(of: item) }) { work() }
            now = .now()
        } while !due.isEmpty && now < end
        if !due.isEmpty { state.withLockedValue { $0.tasks.giveBack(due) } }
        return now
    }

    // MARK: The end

    /// The same as ``end(_:)``.
    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        end { queue.async { callback(nil) } }
    }

    /// Ends the loop behind what it has begun: closes its sockets, does what they leave to do, and drops its timers.
    /// - Parameter report: called behind all of it, from any thread.
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

    /// Whether it has been told to end.
    var isEnding: Bool { state.withLockedValue { $0.phase != .running } }

    private func end() {
        repeat {
            // Whoever has done all that it may in a round comes to its end.
            round.begin(at: .now())
            // Also what the last work has taken on.
            poller.close()
        } while doLastWork()
        // Its number may be another thread's from now on.
        late.withLockedValue { _ in thread.withLockedValue { $0 = nil } }
        for report in state.withLockedValue({ state in
            defer { state.whenEnded = [] }
            return state.whenEnded
        }) {
            report()
        }
    }

    /// Does what is to be done yet, and drops the timers. False, from the moment on at which nothing more is taken, if
    /// there was nothing.
    private func doLastWork() -> Bool {
        let (due, timers) = state.withLockedValue { state in
            let due = state.tasks.takeDue(at: .now()).compactMap { state.tasks.work(of: $0) }
            let timers = state.tasks.takeTimers()
            if due.isEmpty && timers.isEmpty { state.phase = .ended }
            return (due, timers)
        }
        for work in due { work() }
        for timer in timers { timer(false) }
        return !due.isEmpty || !timers.isEmpty
    }
}

/// The round that a loop is in: a new one begins each time it has waited for its sockets. Used on the loop alone.
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

    /// The loop goes on with something else, from `now` on.
    func beginLap(at now: NIODeadline) { lapBegan = now }

    /// How long it has lasted, as far as ``lap()`` has looked.
    public var soFar: TimeAmount { lapBegan - began }

    /// How long the loop has worked since it was last asked that, or went on with something else. Costs a look at the
    /// clock.
    public func lap() -> TimeAmount {
        let now = NIODeadline.now()
        defer { lapBegan = now }
        return now - lapBegan
    }
}

/// What all streams of a loop read into and send from, one at a time: so an idle stream holds no memory.
final class StreamBuffers {
    /// Lent to whoever is told what came. Should they keep it, there is a new one for the next.
    var input = ByteBuffer()
    /// As many replies as leave in one go.
    let spans = UnsafeMutableBufferPointer<clinux_span>.allocate(capacity: 64)

    /// Bytes read at once.
    static var inputSize: Int { 64 << 10 }

    /// Zeroes what was read. Who has kept it keeps the storage: it is not read into again, lest what nobody wipes stay
    /// there.
    func forgetInput() { if !input.wipeReadableBytes() { input = ByteBuffer() } }

    deinit { spans.deallocate() }
}
