import CLinux
import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

/// Starts helpers for a daemon that systemd did not start.
///
/// Before the daemon gives up the right to start programs, it starts another process, the fork server, which keeps that
/// right. The fork server starts the programs of a fixed list, each with a socket from the daemon as its standard
/// input, and ends with the daemon.
package final class ForkServer: Sendable {
    private let descriptor: CInt
    private let programs: [String]

    /// - Parameters:
    ///   - executable: the path of a program that calls ``serve(_:)`` with `programs` when it is run with `arguments`.
    ///   - name: the first argument of the process, which `ps` shows.
    ///   - programs: the paths of at most 256 programs.
    package init(
        _ executable: String, name: String, arguments: [String], programs: [String]
    ) throws(SystemError) {
        let (own, its) = try Self.pair(SOCK_SEQPACKET)
        defer { close(its) }
        do throws(SystemError) {
            try Self.spawn(executable, [name] + arguments, Self.environment(), on: its)
        } catch {
            close(own)
            throw error
        }
        (descriptor, self.programs) = (own, programs)
    }

    deinit { close(descriptor) }

    package func perConnection(_ index: Int) -> any HelperConnector { PerConnectionHelper(server: self, index: index) }

    /// A connector to one process for all connections. The program exits by itself when it has none, and is started
    /// again for the next.
    package func shared(_ index: Int) -> any HelperConnector { SharedHelper(server: self, index: index) }

    /// Starts a program with `socket` as its standard input. The caller closes the socket.
    fileprivate func start(_ index: Int, on socket: CInt) throws(SystemError) {
        guard clinux_send_descriptor(descriptor, socket, UInt8(index)) != 0 else { return }
        let code = errno
        let hasEnded = code == EPIPE || code == ECONNRESET
        throw SystemError(
            "start \(programs[index])\(hasEnded ? " (the fork server ended; restart thumbcached)" : "")",
            code: hasEnded ? EPIPE : code)
    }

    /// The main function of the fork server: starts a program for each socket received over standard input. Returns
    /// when the daemon ends.
    package static func serve(_ programs: [String]) throws(SystemError) {
        try becomeUndumpable()
        // Keeps nothing that was passed to the daemon, such as a socket from systemd.
        guard clinux_close_from(3) == 0 else { throw SystemError("close inherited descriptors") }
        // The kernel reaps the programs; their exit status is not used.
        signal(SIGCHLD, SIG_IGN)
        clinux_release_program_pages()
        while true {
            var index = UInt8()
            let socket = clinux_receive_descriptor(STDIN_FILENO, &index)
            guard socket >= 0 else {
                let code = errno
                if code == 0 { return }
                // The descriptor was lost, possibly at the descriptor limit. The daemon sees EOF and retries.
                if code == EPROTO { continue }
                throw SystemError("receive the socket of a helper", code: code)
            }
            defer { close(socket) }
            guard programs.indices.contains(Int(index)) else { continue }
            do throws(SystemError) {
                try spawn(programs[Int(index)], [programs[Int(index)]], inherited(), on: socket)
            } catch {
                // The daemon sees EOF and retries after a delay.
                write("thumbcached: \(error)\n")
            }
        }
    }

    private static func write(_ line: String) {
        var line = line
        _ = line.withUTF8 { Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    fileprivate static func pair(_ type: __socket_type) throws(SystemError) -> (CInt, CInt) {
        var ends: (CInt, CInt) = (-1, -1)
        let code = withUnsafeMutableBytes(of: &ends) { ends in
            socketpair(
                AF_UNIX, CInt(type.rawValue | SOCK_CLOEXEC.rawValue), 0,
                ends.assumingMemoryBound(to: CInt.self).baseAddress)
        }
        guard code == 0 else { throw SystemError("socketpair") }
        return ends
    }

    /// Environment variables that helpers inherit. Others may contain secrets (I11, F79).
    private static var passed: Set<Substring> {
        [
            "PATH", "LANG", "TZ", "RES_OPTIONS", "LOCALDOMAIN", "JOURNAL_STREAM", "LD_PRELOAD", "LD_LIBRARY_PATH",
            "ASAN_OPTIONS", "TSAN_OPTIONS", "SWIFT_BACKTRACE",
        ]
    }

    private static func environment() -> [String] {
        inherited().filter { line in
            let name = line.prefix { $0 != "=" }
            return passed.contains(name) || name.hasPrefix("THUMBCACHED_")
        }
    }

    private static func inherited() -> [String] {
        var all: [String] = []
        var next = environ
        while let line = next.pointee {
            all.append(String(cString: line))
            next += 1
        }
        return all
    }

    private static func spawn(
        _ program: String, _ arguments: [String], _ environment: [String], on socket: CInt
    ) throws(SystemError) {
        let environment = environment.map { (line: String) in strdup(line) }
        let words = arguments.map { (word: String) in strdup(word) }
        defer { for text in environment + words { free(text) } }
        var (actions, attributes) = (posix_spawn_file_actions_t(), posix_spawnattr_t())
        posix_spawn_file_actions_init(&actions)
        posix_spawnattr_init(&attributes)
        defer {
            posix_spawn_file_actions_destroy(&actions)
            posix_spawnattr_destroy(&attributes)
        }
        posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO)
        // Ctrl-C reaches the daemon only, which shuts helpers down in order.
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP))
        var pid = pid_t()
        let code = posix_spawn(&pid, program, &actions, &attributes, words + [nil], environment + [nil])
        guard code == 0 else {
            throw SystemError(
                "start \(program) (at the limit of processes raise TasksMax= in the unit, in a shell ulimit -u)",
                code: code)
        }
    }
}

private struct PerConnectionHelper: HelperConnector {
    let server: ForkServer
    let index: Int

    func open() throws(SystemError) -> CInt {
        try connected { (socket) throws(SystemError) in try server.start(index, on: socket) }
    }
}

private final class SharedHelper: HelperConnector {
    private let server: ForkServer
    private let index: Int
    /// The socket over which the running process receives connections; -1 before the first start.
    private let process = NIOLockedValueBox<CInt>(-1)

    init(server: ForkServer, index: Int) { (self.server, self.index) = (server, index) }

    deinit { process.withLockedValue { if $0 >= 0 { close($0) } } }

    func open() throws(SystemError) -> CInt {
        try connected { (socket) throws(SystemError) in try pass(socket) }
    }

    private func pass(_ socket: CInt) throws(SystemError) {
        try process.withLockedValue { current in
            Result { () throws(SystemError) in
                if current >= 0, clinux_send_descriptor(current, socket, 0) == 0 { return }
                // No process yet, or it has shut down its socket.
                let (own, its) = try ForkServer.pair(SOCK_SEQPACKET)
                defer { close(its) }
                guard clinux_send_descriptor(own, socket, 0) == 0 else {
                    let error = SystemError("send a descriptor")
                    close(own)
                    throw error
                }
                do throws(SystemError) {
                    try server.start(index, on: its)
                } catch {
                    close(own)
                    throw error
                }
                if current >= 0 { close(current) }
                current = own
            }
        }.get()
    }
}

/// Creates a pair of stream sockets and passes the second to `pass`.
/// - Returns: the first, which is non-blocking.
private func connected(
    _ pass: (CInt) throws(SystemError) -> Void
) throws(SystemError) -> CInt {
    let (own, its) = try ForkServer.pair(SOCK_STREAM)
    defer { close(its) }
    do throws(SystemError) {
        guard fcntl(own, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
        try pass(its)
    } catch {
        close(own)
        throw error
    }
    return own
}
