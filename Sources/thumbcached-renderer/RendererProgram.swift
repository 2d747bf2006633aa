import CLinux
import CRenderer
import Glibc
import LinuxSupport
import ProgramLog

/// The parent: it has libvips loaded, and never looks at a picture. Each connection gets a copy of it, a worker, which
/// begins with what the parent has: a hundred libraries, and nothing of anybody's.
struct RendererProgram {
    /// Workers at once. Who comes when there are as many waits in the socket's queue.
    private static var mostWorkers: Int { 64 }

    private let connections: Connections
    private var workers: Set<pid_t> = []

    init(_ connections: Connections) { self.connections = connections }

    /// Returns when no more connections can come.
    mutating func serve() throws {
        try load()
        // Only so that a wait is interrupted when a worker has ended.
        signal(SIGCHLD) { _ in }
        while true {
            reap()
            var wanted = pollfd(fd: connections.descriptor, events: Int16(POLLIN), revents: 0)
            // A worker that ended between the look and the wait is met at the next one.
            let ready = poll(&wanted, workers.count < Self.mostWorkers ? 1 : 0, workers.isEmpty ? -1 : 1_000)
            guard ready > 0 else { continue }
            switch try connections.next() {
            case .connection(let connection): try start(connection)
            case .none: continue
            case .end: return
            }
        }
    }

    private func load() throws(SystemError) {
        let why = UnsafeMutablePointer<CChar>.allocate(capacity: 256)
        defer { why.deallocate() }
        guard crenderer_load("thumbcached-renderer", why, 256) == 0 else {
            throw SystemError("load libvips: \(String(cString: why))", code: ENOEXEC)
        }
        try becomeUndumpable()
    }

    private mutating func start(_ connection: CInt) throws(SystemError) {
        defer { close(connection) }
        let child = crenderer_fork()
        guard child >= 0 else {
            // The daemon finds its end closed, and tries again after a pause of its own.
            StandardError().write("thumbcached-renderer: \(SystemError("start a worker"))\n")
            return
        }
        if child == 0 { Worker.run(on: connection) }
        workers.insert(child)
    }

    private mutating func reap() {
        while true {
            let child = waitpid(-1, nil, WNOHANG)
            guard child > 0 else { return }
            workers.remove(child)
        }
    }
}
