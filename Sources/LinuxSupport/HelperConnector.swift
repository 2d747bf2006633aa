import CLinux
import Glibc
import NIOConcurrencyHelpers

/// How a process is had that does for the daemon what the daemon may not: speak with the network, or decode a picture.
public protocol HelperConnector: Sendable {
    /// A non-blocking socket to a process, which serves nobody else over it.
    /// - Throws: EPIPE if no process can be had until the daemon starts again.
    func open() throws(SystemError) -> CInt
}

/// The one that systemd starts for whoever connects to its socket: a unit with a uid of its own.
public struct HelperUnit: HelperConnector {
    private let path: String

    public init(path: String) { self.path = path }

    public func open() throws(SystemError) -> CInt {
        let address = try UnixAddress(path)
        let descriptor = try retryingInterrupts("make a socket") {
            socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        }
        let code = address.withSocketAddress { connect(descriptor, $0, $1) }
        guard code == 0 else {
            let error = SystemError("connect to \(path)")
            close(descriptor)
            throw error
        }
        return descriptor
    }
}

/// Starts helpers where systemd does not.
///
/// The daemon gives up the right to start programs. Before, it starts a process that keeps it: this one starts the programs
/// of a fixed list, each with a socket of the daemon's as its standard input, and ends with the daemon.
public final class HelperStarter: Sendable {
    private let descriptor: CInt
    private let programs: [String]

    /// - Parameters:
    ///   - executable: the path of a program that calls ``serve(_:)`` with `programs` when it is run with `arguments`.
    ///   - name: what the process is called: its first argument.
    ///   - programs: the paths of at most 256 programs.
    /// - Throws: if the system starts no process.
    public init(
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

    /// A helper that is started for each connection.
    public func one(_ index: Int) -> any HelperConnector { StartedHelper(starter: self, index: index) }

    /// A helper that serves all connections, and ends by itself when it has none.
    public func shared(_ index: Int) -> any HelperConnector { SharedHelper(starter: self, index: index) }

    /// Starts a program with `socket` as its standard input. The caller closes the socket.
    fileprivate func start(_ index: Int, on socket: CInt) throws(SystemError) {
        guard clinux_send_descriptor(descriptor, socket, UInt8(index)) != 0 else { return }
        let code = errno
        let gone = code == EPIPE || code == ECONNRESET
        throw SystemError(
            "start \(programs[index])\(gone ? " (the process that starts it has ended: restart thumbcached)" : "")",
            code: gone ? EPIPE : code)
    }

    /// The started process: starts a program for each socket that comes over standard input. Returns when the daemon has
    /// ended.
    public static func serve(_ programs: [String]) throws(SystemError) {
        try becomeUndumpable()
        // Nothing that the daemon was passed stays open here.
        guard clinux_close_from(3) == 0 else { throw SystemError("close inherited descriptors") }
        // How the programs end is of no interest.
        signal(SIGCHLD, SIG_IGN)
        while true {
            var index = UInt8()
            let socket = clinux_receive_descriptor(STDIN_FILENO, &index)
            guard socket >= 0 else {
                let code = errno
                if code == 0 { return }
                // Possibly for want of a descriptor. The daemon sees that its end is closed.
                if code == EPROTO { continue }
                throw SystemError("receive a socket to start a helper on", code: code)
            }
            defer { close(socket) }
            guard programs.indices.contains(Int(index)) else { continue }
            do throws(SystemError) {
                try spawn(programs[Int(index)], [programs[Int(index)]], inherited(), on: socket)
            } catch {
                // The daemon finds its end closed, and tries again after a pause.
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
        guard code == 0 else { throw SystemError("make a pair of sockets") }
        return ends
    }

    /// What it may see of the environment. Whatever else stands there may be a secret of others (I11, F79).
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
        // A Ctrl-C is the daemon's: it ends them when it has done with them.
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

private struct StartedHelper: HelperConnector {
    let starter: HelperStarter
    let index: Int

    func open() throws(SystemError) -> CInt {
        try connected { (socket) throws(SystemError) in try starter.start(index, on: socket) }
    }
}

private final class SharedHelper: HelperConnector {
    private let starter: HelperStarter
    private let index: Int
    /// Leads to the running process; -1 before the first.
    private let handing = NIOLockedValueBox<CInt>(-1)

    init(starter: HelperStarter, index: Int) { (self.starter, self.index) = (starter, index) }

    deinit { handing.withLockedValue { if $0 >= 0 { close($0) } } }

    func open() throws(SystemError) -> CInt {
        try connected { (socket) throws(SystemError) in try hand(socket) }
    }

    private func hand(_ socket: CInt) throws(SystemError) {
        try handing.withLockedValue { current in
            Result { () throws(SystemError) in
                if current >= 0, clinux_send_descriptor(current, socket, 0) == 0 { return }
                // It has ended, or ends and receives nothing more.
                let (own, its) = try HelperStarter.pair(SOCK_SEQPACKET)
                defer { close(its) }
                guard clinux_send_descriptor(own, socket, 0) == 0 else {
                    let error = SystemError("send a descriptor")
                    close(own)
                    throw error
                }
                do throws(SystemError) {
                    try starter.start(index, on: its)
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

/// Makes a pair of stream sockets and has the second handed over.
/// - Returns: the first, which does not block.
private func connected(
    _ handOver: (CInt) throws(SystemError) -> Void
) throws(SystemError) -> CInt {
    let (own, its) = try HelperStarter.pair(SOCK_STREAM)
    defer { close(its) }
    do throws(SystemError) {
        guard fcntl(own, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
        try handOver(its)
    } catch {
        close(own)
        throw error
    }
    return own
}
