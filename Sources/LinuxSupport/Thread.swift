import CLinux
import Glibc

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
