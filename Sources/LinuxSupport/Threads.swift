import CLinux
import DequeModule
import Glibc
import NIOConcurrencyHelpers

/// Runs `body` on a new thread with all signals blocked. Other threads handle signals, and a SIGPIPE caused by OpenSSL
/// must not end the process. The caller has to join or detach the thread.
/// - Parameter name: the name shown by system tools, at most 15 characters.
/// - Throws: if pthread_create(3) fails.
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
            "start a thread for \(name) (at the limit of threads, raise TasksMax= in the unit or ulimit -u)", code: code
        )
    }
    return thread
}

/// Passes a closure through a pointer.
private final class Box: Sendable {
    let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

/// Threads that perform the work in a queue, and sleep while there is none.
public final class WorkerThreads<Queue: Sendable>: Sendable {
    /// Performs a piece of work and returns the change to the queue after it.
    public typealias Work = @Sendable () -> @Sendable (inout Queue) -> Void

    private struct State {
        var queue: Queue
        var asleep = 0
        var isEnding = false
    }

    private let state: NIOLockedValueBox<State>
    private let wakeup = Semaphore()
    private let running = NIOLockedValueBox<[pthread_t]>([])

    public init(_ queue: Queue) { state = NIOLockedValueBox(State(queue: queue)) }

    /// - Parameters:
    ///   - name: the name shown by system tools, at most 15 characters.
    ///   - next: removes and returns work that may start now, or returns nil.
    /// - Throws: if pthread_create(3) fails. Threads started before have ended then.
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

    /// Adds work to the queue and wakes a thread. Returns false, and adds nothing, if the threads are ending.
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

    /// Returns after all work that may start is done and all threads have ended.
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
                // Leaves work that may not start yet to the threads that are still busy.
                return
            } else {
                wakeup.wait()
            }
        }
    }
}

/// Threads for Swift tasks, which run in the order in which they become ready (SE-0417). A task and its children run on
/// them if it is started with `Task(executorPreference:)`.
///
/// The default executor is libdispatch's. It starts threads at will, monitors them through /proc, and traps if no
/// thread or descriptor is available (F75). These threads are started once and need no descriptors.
public final class TaskThreads: TaskExecutor {
    private let workers = WorkerThreads<Deque<UnownedJob>>([])

    public init(named name: String, count: Int) throws(SystemError) {
        try workers.start(named: name, count: count) { ready in
            guard let job = ready.popFirst() else { return nil }
            return {
                job.runSynchronously(on: self.asUnownedTaskExecutor())
                return { _ in }
            }
        }
    }

    /// A task that becomes ready after the threads have ended never runs.
    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        _ = workers.add { $0.append(job) }
    }

    /// Runs `work` as a task on these threads and blocks the calling thread, which must not be one of them, until it
    /// ends.
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

/// A counting semaphore: sem_overview(7).
public final class Semaphore: @unchecked Sendable {
    // Unchecked: any thread may call these functions on a semaphore.
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

    /// Blocks until there is a permit, and consumes it.
    public func wait() {
        while sem_wait(semaphore) != 0 {}
    }

    /// Blocks for a limited time. Uses a monotonic clock, because the wall clock may be set (F14).
    public func wait(milliseconds: Int64) { _ = clinux_wait_semaphore(semaphore, milliseconds) }
}
