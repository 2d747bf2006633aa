import CLinux
import Glibc

/// How a process is had that does for the daemon what the daemon may not: speak with the network, or decode a picture.
public protocol HelperLink: Sendable {
    /// A socket that leads to one that nobody else speaks with. It does not block.
    func open() throws(SystemError) -> CInt
}

/// The one that systemd starts for whoever connects to its socket: a unit with a uid of its own.
public struct HelperUnit: HelperLink {
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

/// One of the daemon's own, where nobody else starts it.
///
/// The daemon gives up the right to start programs. So it starts one before, which starts a process for each socket
/// that it is handed, and ends with the daemon.
public final class HelperStarter: HelperLink {
    /// Leads to it.
    private let descriptor: CInt
    private let program: String

    /// - Parameter program: the path of `thumbcached-fetcher`, say.
    /// - Throws: where there is no such program, or the system starts none.
    public init(program: String, arguments: [String] = []) throws(SystemError) {
        let (own, its) = try Self.pair(SOCK_SEQPACKET)
        defer { close(its) }
        do throws(SystemError) {
            try Self.spawn(program, arguments, on: its)
        } catch {
            close(own)
            throw error
        }
        descriptor = own
        self.program = program
    }

    deinit { close(descriptor) }

    public func open() throws(SystemError) -> CInt {
        let (own, its) = try Self.pair(SOCK_STREAM)
        defer { close(its) }
        guard clinux_send_descriptor(descriptor, its) == 0 else {
            let error = SystemError("hand a socket to \(program)")
            close(own)
            throw error
        }
        // The other end blocks, this one does not.
        guard fcntl(own, F_SETFL, O_NONBLOCK) == 0 else {
            let error = SystemError("fcntl")
            close(own)
            throw error
        }
        return own
    }

    private static func pair(_ type: __socket_type) throws(SystemError) -> (CInt, CInt) {
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

    private static func environment() -> [UnsafeMutablePointer<CChar>?] {
        var all: [UnsafeMutablePointer<CChar>?] = []
        var next = environ
        while let line = next.pointee {
            let name = String(cString: line).prefix { $0 != "=" }
            if passed.contains(name) || name.hasPrefix("THUMBCACHED_") { all.append(strdup(line)) }
            next += 1
        }
        return all
    }

    private static func spawn(_ program: String, _ arguments: [String], on socket: CInt) throws(SystemError) {
        let environment = environment()
        let words = ([program] + arguments).map { (word: String) in strdup(word) }
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
