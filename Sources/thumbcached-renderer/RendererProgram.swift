import CLinux
import CRenderer
import Glibc
import LinuxSupport
import ProgramSupport

/// The parent process: loads libvips and never reads a picture. Each connection is served by a copy of it, a worker, which
/// starts with the libraries that the parent has loaded and with no data of any user.
struct RendererProgram {
    /// Workers at once. Further connections wait in the socket's queue.
    private static var mostWorkers: Int { 64 }
    /// Threads that one worker may start. libvips needs three at a time, and starts each of them again at most four times
    /// in a worker's life. A worker that wants more runs code of somebody else's, and is killed.
    private static var mostThreads: Int { 32 }

    private struct Process {
        /// The connection that the worker serves. The parent only learns that it was closed.
        let connection: CInt
        /// Where the worker sends its listener, and from then on that listener: `crenderer_report_threads`. -1 if the
        /// kernel has none.
        var reports: CInt
        var isListening = false
        var threads = 0
    }

    private var connections: Connections
    /// Seconds without a worker after which the program ends.
    private let patience: Int
    private var workers: [pid_t: Process] = [:]
    /// Workers that were killed and have not ended yet.
    private var ending: Set<pid_t> = []

    init(_ connections: Connections, patience: Int) { (self.connections, self.patience) = (connections, patience) }

    /// Returns when no more connections can come, or none has come for a while.
    mutating func serve() throws {
        try load()
        let signals = blockEndsOfWorkers()
        while true {
            reap()
            if connections.haveEnded && workers.isEmpty { return }
            guard waitForConnection(signals) else { continue }
            switch try connections.next() {
            case .connection(let connection): start(connection, signals)
            case .none: continue
            case .end:
                // The daemon is gone, unless the program said that it ends: then the last workers go on.
                guard connections.isEnding else { return }
                connections.forget()
            }
        }
    }

    /// Makes the end of a worker interrupt a wait, and nothing else.
    /// - Returns: the signals that are blocked while the program waits.
    private func blockEndsOfWorkers() -> sigset_t {
        signal(SIGCHLD) { _ in }
        var (ends, before) = (sigset_t(), sigset_t())
        sigemptyset(&ends)
        sigaddset(&ends, SIGCHLD)
        sigprocmask(SIG_BLOCK, &ends, &before)
        // The process that started this one may have blocked it.
        sigdelset(&before, SIGCHLD)
        return before
    }

    /// Waits for a connection, the end of a worker, or a report of one. Kills workers whose connection the daemon has
    /// closed: a worker may be under control of a picture, and would stay.
    /// - Returns: whether ``Connections/next()`` has something to say.
    private mutating func waitForConnection(_ signals: sigset_t) -> Bool {
        let pids = Array(workers.keys)
        let listening = workers.count + ending.count < Self.mostWorkers ? connections.descriptor : -1
        var waits = [pollfd(fd: listening, events: Int16(POLLIN), revents: 0)]
        for worker in workers.values {
            waits.append(pollfd(fd: worker.connection, events: 0, revents: 0))
            waits.append(pollfd(fd: worker.reports, events: Int16(POLLIN), revents: 0))
        }
        let isIdle = workers.isEmpty && ending.isEmpty && !connections.isEnding
        let limit = CInt(clamping: isIdle ? patience : -1)
        let count = withUnsafePointer(to: signals) { crenderer_poll(&waits, waits.count, limit, $0) }
        if count == 0 {
            connections.endWaiting()
            return true
        }
        guard count > 0 else { return false }
        for (index, pid) in pids.enumerated() {
            if waits[2 * index + 1].revents != 0 {
                end(pid)
            } else if waits[2 * index + 2].revents != 0 {
                takeReport(of: pid)
            }
        }
        return waits[0].revents != 0
    }

    /// Takes the listener of a worker, or lets a thread of it start.
    private mutating func takeReport(of pid: pid_t) {
        guard var worker = workers[pid] else { return }
        if !worker.isListening {
            let listener = clinux_receive_descriptor(worker.reports, nil)
            close(worker.reports)
            (worker.reports, worker.isListening) = (max(-1, listener), true)
        } else {
            worker.threads += 1
            if worker.threads > Self.mostThreads { return end(pid) }
            if crenderer_allow_thread(worker.reports) != 0 {
                // The thread, or the worker, has ended meanwhile.
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

    private mutating func end(_ pid: pid_t) {
        kill(pid, SIGKILL)
        forget(pid)
        ending.insert(pid)
    }

    private mutating func forget(_ pid: pid_t) {
        ending.remove(pid)
        guard let worker = workers.removeValue(forKey: pid) else { return }
        close(worker.connection)
        if worker.reports >= 0 { close(worker.reports) }
    }

    private func load() throws(SystemError) {
        let why = UnsafeMutablePointer<CChar>.allocate(capacity: 256)
        defer { why.deallocate() }
        guard crenderer_load("thumbcached-renderer", why, 256) == 0 else {
            throw SystemError("load libvips: \(String(cString: why))", code: ENOEXEC)
        }
        try becomeUndumpable()
    }

    private mutating func start(_ connection: CInt, _ signals: sigset_t) {
        let own = getpid()
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { return refuse(connection, SystemError("socketpair")) }
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
            return refuse(connection, error)
        }
        workers[child] = Process(connection: connection, reports: ends[0])
    }

    /// The daemon finds its end closed, and tries again after a pause.
    private func refuse(_ connection: CInt, _ error: SystemError) {
        StandardError().write("thumbcached-renderer: \(error)\n")
        close(connection)
    }

    private mutating func reap() {
        while true {
            let child = waitpid(-1, nil, WNOHANG)
            guard child > 0 else { return }
            forget(child)
        }
    }
}
