import CLinux
import CRenderer
import Glibc
import LinuxSupport
import ProgramSupport

/// The parent: it has libvips loaded, and never looks at a picture. Each connection gets a copy of it, a worker, which
/// begins with what the parent has: a hundred libraries, and nothing of anybody's.
struct RendererProgram {
    /// Workers at once. Who comes when there are as many waits in the socket's queue.
    private static var mostWorkers: Int { 64 }

    private let connections: Connections
    /// Each one's process, and the connection that it serves, which nobody reads here; -1 where it is being killed.
    private var workers: [pid_t: CInt] = [:]

    init(_ connections: Connections) { self.connections = connections }

    /// Returns when no more connections can come.
    mutating func serve() throws {
        try load()
        let signals = blockEndsOfWorkers()
        while true {
            reap()
            guard waitForWork(signals) else { continue }
            switch try connections.next() {
            case .connection(let connection): start(connection, signals)
            case .none: continue
            case .end: return
            }
        }
    }

    /// A worker that ends interrupts a wait, and nothing else.
    /// - Returns: the signals that are blocked while it waits.
    private func blockEndsOfWorkers() -> sigset_t {
        signal(SIGCHLD) { _ in }
        var (ends, before) = (sigset_t(), sigset_t())
        sigemptyset(&ends)
        sigaddset(&ends, SIGCHLD)
        sigprocmask(SIG_BLOCK, &ends, &before)
        // Whoever started this may have had it blocked.
        sigdelset(&before, SIGCHLD)
        return before
    }

    /// Returns when somebody wants a worker, or one has ended. One whose connection the daemon has closed is killed: it
    /// may be in the hands of a picture, and would stay.
    /// - Returns: whether a worker is wanted.
    private mutating func waitForWork(_ signals: sigset_t) -> Bool {
        let busy = workers.map { (pid: $0.key, wait: pollfd(fd: $0.value, events: 0, revents: 0)) }
        let listening = workers.count < Self.mostWorkers ? connections.descriptor : -1
        var waits = busy.map(\.wait) + [pollfd(fd: listening, events: Int16(POLLIN), revents: 0)]
        guard withUnsafePointer(to: signals, { crenderer_poll(&waits, waits.count, $0) }) > 0 else { return false }
        for (worker, wait) in zip(busy, waits) where wait.revents != 0 {
            kill(worker.pid, SIGKILL)
            close(wait.fd)
            workers[worker.pid] = -1
        }
        return waits[busy.count].revents != 0
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
        let child = crenderer_fork()
        guard child >= 0 else {
            // The daemon finds its end closed, and tries again after a pause of its own.
            StandardError().write("thumbcached-renderer: \(SystemError("start a worker"))\n")
            close(connection)
            return
        }
        if child == 0 {
            signal(SIGCHLD, SIG_DFL)
            _ = withUnsafePointer(to: signals) { sigprocmask(SIG_SETMASK, $0, nil) }
            Worker.run(on: connection, of: own)
        }
        workers[child] = connection
    }

    private mutating func reap() {
        while true {
            let child = waitpid(-1, nil, WNOHANG)
            guard child > 0 else { return }
            if let connection = workers.removeValue(forKey: child), connection >= 0 { close(connection) }
        }
    }
}
