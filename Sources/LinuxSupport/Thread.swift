import CLinux
import Glibc
import NIOConcurrencyHelpers

/// Runs `body` on a new thread, which no signal is delivered to: they are for others to handle, and a SIGPIPE that a write of
/// OpenSSL's raises there must not end the process.
///
/// - Parameter name: what the system's tools show; 15 characters at most.
/// - Returns: the thread, to be joined or detached by the caller.
/// - Throws: when there is no thread to be had: pthread_create(3).
public func startThread(named name: String, _ body: @escaping @Sendable () -> Void) throws(ThreadError) -> pthread_t {
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
        throw ThreadError(name: name, code: code)
    }
    return thread
}

/// Threads that do the same, and end together.
public final class Threads: Sendable {
    private let running = NIOLockedValueBox<[pthread_t]>([])

    public init() {}

    /// - Throws: when there is no thread to be had. Those that were started are there then.
    public func start(
        named name: String, count: Int, _ body: @escaping @Sendable () -> Void
    ) throws(ThreadError) {
        for _ in 0..<count {
            let thread = try startThread(named: name, body)
            running.withLockedValue { $0.append(thread) }
        }
    }

    /// Returns when all have ended.
    public func join() {
        let threads = running.withLockedValue { threads in
            defer { threads = [] }
            return threads
        }
        for thread in threads { pthread_join(thread, nil) }
    }
}

/// A thread that the system did not give.
public struct ThreadError: Error, Equatable, CustomStringConvertible {
    /// What it would have been called.
    public let name: String
    /// The errno.
    public let code: CInt

    public var description: String {
        let reason = "no thread could be started for \(name): \(String(cString: strerror(code)))"
        guard code == EAGAIN else { return reason }
        return reason + "; the limit of threads is reached: raise TasksMax= in the unit (ulimit -u in a shell)"
    }
}

/// What a thread is to do, on its way through a pointer.
private final class Box: Sendable {
    let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}
