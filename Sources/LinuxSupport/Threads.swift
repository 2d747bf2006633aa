import CLinux
import DequeModule
import Glibc
import NIOConcurrencyHelpers

/// Runs `body` on a new thread, which no signal is delivered to: they are for others to handle, and a SIGPIPE that a
/// write of OpenSSL's raises there must not end the process.
///
/// - Parameter name: what the system's tools show; 15 characters at most.
/// - Returns: the thread, to be joined or detached by the caller.
/// - Throws: when there is no thread to be had: pthread_create(3).
public func startThread(named name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) -> pthread_t {
    var all = sigset_t()
    var before = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, &before)
    defer { pthread_sigmask(SIG_SETMASK, &before, nil) }

    let box = Unmanaged.passRetained(
        Box {
            clinux_name_thread(name)
            body()
        })
    var thread = pthread_t()
    let code = pthread_create(
        &thread, nil,
        { context in
            if let context { Unmanaged<Box>.fromOpaque(context).takeRetainedValue().body() }
            return nil
        }, box.toOpaque())
    guard code == 0 else {
        box.release()
        throw SystemError(
            "no thread could be started for \(name) (at the limit of threads raise TasksMax= in the unit, in a shell "
                + "ulimit -u)", code: code)
    }
    return thread
}

/// What a thread is to do, on its way through a pointer.
private final class Box: Sendable {
    let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

/// Threads that do what a queue has, and sleep while it has nothing for them.
public final class WorkerThreads<Queue: Sendable>: Sendable {
    /// Says what is to be done to the queue behind it.
    public typealias Work = @Sendable () -> @Sendable (inout Queue) -> Void

    private struct State {
        var queue: Queue
        /// Threads that wait for work.
        var asleep = 0
        var isEnding = false
    }

    private let state: NIOLockedValueBox<State>
    private let wakeup = Semaphore()
    private let running = NIOLockedValueBox<[pthread_t]>([])

    public init(_ queue: Queue) { state = NIOLockedValueBox(State(queue: queue)) }

    /// - Parameters:
    ///   - name: of the threads, as the system's tools show it; 15 characters at most.
    ///   - count: 1 or more.
    ///   - next: takes something out of the queue, if there is something that may be done now.
    /// - Throws: when there is no thread to be had: pthread_create(3). Those that were started end then.
    public func start(
        named name: String, count: Int, next: @escaping @Sendable (inout Queue) -> Work?
    ) throws(SystemError) {
        do throws(SystemError) {
            for _ in 0..<count {
                let thread = try startThread(named: name) { self.work(next) }
                running.withLockedValue { $0.append(thread) }
            }
        } catch {
            stop()
            throw error
        }
    }

    /// Puts one piece of work into the queue, and wakes a thread for it. False where the threads are ending: then
    /// nothing is put there.
    public func add(_ put: (inout Queue) -> Void) -> Bool {
        let wakes: Bool? = state.withLockedValue { state in
            if state.isEnding { return nil }
            put(&state.queue)
            guard state.asleep > 0 else { return false }
            state.asleep -= 1
            return true
        }
        if wakes == true { wakeup.signal() }
        return wakes != nil
    }

    /// Returns when all that may be done is done and every thread has ended.
    public func stop() {
        let asleep = state.withLockedValue { state in
            state.isEnding = true
            defer { state.asleep = 0 }
            return state.asleep
        }
        for _ in 0..<asleep { wakeup.signal() }
        let threads = running.withLockedValue { running in
            defer { running = [] }
            return running
        }
        for thread in threads { pthread_join(thread, nil) }
    }

    private func work(_ next: (inout Queue) -> Work?) {
        while true {
            let (work, isEnding) = state.withLockedValue { state in
                let work = next(&state.queue)
                if work == nil && !state.isEnding { state.asleep += 1 }
                return (work, state.isEnding)
            }
            if let work {
                let after = work()
                state.withLockedValue { after(&$0.queue) }
            } else if isEnding {
                // Whoever comes back takes what may not be done yet.
                return
            } else {
                wakeup.wait()
            }
        }
    }
}

/// Threads that tasks run on, in the order in which they become ready, instead of the runtime's own pool (SE-0417).
///
/// The runtime's pool is libdispatch's. It makes threads whenever it sees fit, watches them through files in /proc, and
/// traps where there is no thread or no descriptor to be had (F75). These threads are made once and need neither.
///
/// A task stays on them if it is started with them as its preference, `Task(executorPreference:)`, and so do its
/// children.
public final class TaskThreads: TaskExecutor {
    private let workers = WorkerThreads<Deque<UnownedJob>>([])

    /// - Throws: what ``WorkerThreads/start(named:count:next:)`` throws.
    public init(named name: String, count: Int) throws(SystemError) {
        try workers.start(named: name, count: count) { ready in
            guard let job = ready.popFirst() else { return nil }
            return {
                job.runSynchronously(on: self.asUnownedTaskExecutor())
                return { _ in }
            }
        }
    }

    /// A task that becomes ready when the threads have ended stands still for ever.
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        _ = workers.add { $0.append(job) }
    }

    /// Runs `work` as a task on these threads, and blocks the calling one, which is none of them, until it is done.
    public func wait<Value: Sendable>(for work: @escaping @Sendable () async throws -> Value) throws -> Value {
        let outcome = NIOLockedValueBox<Result<Value, any Error>?>(nil)
        let isDone = Semaphore()
        Task(executorPreference: self) {
            let result: Result<Value, any Error>
            do { result = .success(try await work()) } catch { result = .failure(error) }
            outcome.withLockedValue { $0 = result }
            isDone.signal()
        }
        while true {
            isDone.wait()
            if let result = outcome.withLockedValue({ $0 }) { return try result.get() }
        }
    }
}

/// A number of permits that threads wait for: sem_overview(7).
public final class Semaphore: @unchecked Sendable {
    // Unchecked, because a pointer is not Sendable: each of the calls may be made by any thread.
    private let semaphore: UnsafeMutablePointer<sem_t>

    public init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    public func signal() { sem_post(semaphore) }

    /// Blocks until there is a permit, and takes it.
    public func wait() {
        // Only a signal handler makes it return without one.
        while sem_wait(semaphore) != 0 {}
    }

    /// The same, but for so long at most, by the machine's running time and not by the wall clock (F14).
    public func wait(milliseconds: Int64) { _ = clinux_wait_semaphore(semaphore, milliseconds) }
}
