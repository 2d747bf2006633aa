import CLinux
import CRenderer
import Glibc
import LinuxSupport
import ProgramSupport

/// The parent process, which loads libvips and never reads an image. It forks a worker for each connection, so a worker
/// starts with libvips loaded and without data of any user.
struct RendererProgram {
    /// Maximum number of workers. Further connections wait in the socket's queue.
    private static var maximumWorkers: Int { 64 }
    /// Maximum number of threads that a worker may start during its life. libvips uses three at a time, and starts each
    /// of them again at most four times. A worker that starts more is under an attacker's control, and is killed.
    private static var maximumThreads: Int { 32 }

    private struct Process {
        /// The connection that the worker serves. The parent only learns that it was closed.
        let connection: CInt
        /// The socket over which the worker sends its listener, `clinux_report_threads`, and afterwards that listener;
        /// -1 if the kernel does not support it.
        var reports: CInt
        var isListening = false
        var threads = 0
    }

    private var connections: Connections
    /// Seconds without a worker after which the program exits.
    private let idleTimeout: Int
    private var workers: [pid_t: Process] = [:]
    /// Workers that were killed and have not ended yet.
    private var ending: Set<pid_t> = []

    init(_ connections: Connections, idleTimeout: Int) {
        (self.connections, self.idleTimeout) = (connections, idleTimeout)
    }

    /// Returns when no more connections can arrive, or after the idle timeout.
    mutating func serve() throws {
        try load()
        let signals = blockChildSignals()
        while true {
            reap()
            if connections.haveEnded && workers.isEmpty { return }
            guard waitForConnection(signals) else { continue }
            switch try connections.next() {
            case .connection(let connection): start(connection, signals)
            case .none: continue
            case .end:
                // The daemon has ended, unless the program stopped accepting itself: then the last workers go on.
                guard connections.isEnding else { return }
                connections.end()
            }
        }
    }

    /// Makes SIGCHLD interrupt `crenderer_poll` and no other call.
    /// - Returns: the signals to block during `crenderer_poll`.
    private func blockChildSignals() -> sigset_t {
        signal(SIGCHLD) { _ in }
        var (blocked, before) = (sigset_t(), sigset_t())
        sigemptyset(&blocked)
        sigaddset(&blocked, SIGCHLD)
        sigprocmask(SIG_BLOCK, &blocked, &before)
        // The process that started this one may have blocked it.
        sigdelset(&before, SIGCHLD)
        return before
    }

    /// Waits for a connection, the end of a worker, or a thread that a worker starts. Kills workers whose connection
    /// the daemon has closed, because a worker that an attacker controls would not exit.
    /// - Returns: whether to call ``Connections/next()``.
    private mutating func waitForConnection(_ signals: sigset_t) -> Bool {
        let pids = Array(workers.keys)
        let listening = workers.count + ending.count < Self.maximumWorkers ? connections.descriptor : -1
        var waits = [pollfd(fd: listening, events: Int16(POLLIN), revents: 0)]
        for worker in workers.values {
            waits.append(pollfd(fd: worker.connection, events: 0, revents: 0))
            waits.append(pollfd(fd: worker.reports, events: Int16(POLLIN), revents: 0))
        }
        let isIdle = workers.isEmpty && ending.isEmpty && !connections.isEnding
        let limit = CInt(clamping: isIdle ? idleTimeout : -1)
        let count = withUnsafePointer(to: signals) { crenderer_poll(&waits, waits.count, limit, $0) }
        if count == 0 {
            connections.stopAccepting()
            return true
        }
        guard count > 0 else { return false }
        for (index, pid) in pids.enumerated() {
            if waits[2 * index + 1].revents != 0 {
                terminate(pid)
            } else if waits[2 * index + 2].revents != 0 {
                handleReport(of: pid)
            }
        }
        return waits[0].revents != 0
    }

    /// Receives the listener of a worker, or lets a thread of it start.
    private mutating func handleReport(of pid: pid_t) {
        guard var worker = workers[pid] else { return }
        if !worker.isListening {
            let listener = clinux_receive_descriptor(worker.reports, nil)
            close(worker.reports)
            (worker.reports, worker.isListening) = (max(-1, listener), true)
        } else {
            worker.threads += 1
            if worker.threads > Self.maximumThreads { return terminate(pid) }
            if clinux_allow_thread(worker.reports) != 0 {
                // The thread or the worker has ended meanwhile.
                var wait = pollfd(fd: worker.reports, events: Int16(POLLIN), revents: 0)
                poll(&wait, 1, 0)
                if wait.revents & Int16(POLLHUP) != 0 {
                    close(worker.reports)
                    worker.reports = -1
                }
            }
        }
        workers[pid] = worker
    }

    private mutating func terminate(_ pid: pid_t) {
        kill(pid, SIGKILL)
        remove(pid)
        ending.insert(pid)
    }

    private mutating func remove(_ pid: pid_t) {
        ending.remove(pid)
        guard let worker = workers.removeValue(forKey: pid) else { return }
        close(worker.connection)
        if worker.reports >= 0 { close(worker.reports) }
    }

    private func load() throws(SystemError) {
        let reason = UnsafeMutablePointer<CChar>.allocate(capacity: 256)
        defer { reason.deallocate() }
        guard crenderer_load("thumbcached-renderer", reason, 256) == 0 else {
            throw SystemError("load libvips: \(String(cString: reason))", code: ENOEXEC)
        }
        try becomeUndumpable()
    }

    private mutating func start(_ connection: CInt, _ signals: sigset_t) {
        let own = getpid()
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { return reject(connection, SystemError("socketpair")) }
        let child = crenderer_fork()
        if child == 0 {
            signal(SIGCHLD, SIG_DFL)
            _ = withUnsafePointer(to: signals) { sigprocmask(SIG_SETMASK, $0, nil) }
            Worker.run(on: connection, reports: ends[1], of: own)
        }
        let error = SystemError("start a worker")
        close(ends[1])
        guard child >= 0 else {
            close(ends[0])
            return reject(connection, error)
        }
        workers[child] = Process(connection: connection, reports: ends[0])
    }

    /// Closes a connection for which no worker could be started. The daemon retries after a delay.
    private func reject(_ connection: CInt, _ error: SystemError) {
        StandardError().write("thumbcached-renderer: \(error)\n")
        close(connection)
    }

    private mutating func reap() {
        while true {
            let child = waitpid(-1, nil, WNOHANG)
            guard child > 0 else { return }
            remove(child)
        }
    }
}
