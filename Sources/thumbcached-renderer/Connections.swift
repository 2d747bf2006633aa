import CLinux
import Glibc
import LinuxSupport

/// Where a worker's connection to the daemon comes from.
enum Connections {
    /// A listening socket, which systemd passes: sd_listen_fds(3).
    case listener(CInt)
    /// A socket through which the daemon that started this hands over one descriptor after another.
    case handedOver(CInt)

    static func passed() throws(SystemError) -> Self {
        let sockets = getenv("LISTEN_FDS").map { String(cString: $0) }
        guard let sockets, getenv("LISTEN_PID").map({ String(cString: $0) }) == "\(getpid())" else {
            return .handedOver(STDIN_FILENO)
        }
        guard sockets == "1" else {
            throw SystemError("take LISTEN_FDS=\(sockets) sockets instead of one", code: EINVAL)
        }
        return .listener(3)
    }

    /// What to watch for the next.
    var descriptor: CInt {
        switch self {
        case .listener(let descriptor), .handedOver(let descriptor): descriptor
        }
    }

    enum Next {
        case connection(CInt)
        /// It went away before it was taken.
        case none
        /// There will be no more.
        case end
    }

    /// The next, where there is one.
    func next() throws(SystemError) -> Next {
        switch self {
        case .listener(let listener):
            // Nothing is ever executed here, or by a worker, that it could be left open for.
            let connection = accept(listener, nil, nil)
            if connection >= 0 { return .connection(connection) }
            let code = errno
            guard [EAGAIN, EINTR, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) else {
                throw SystemError("accept a connection", code: code)
            }
            return .none
        case .handedOver(let socket):
            let connection = clinux_receive_descriptor(socket)
            if connection >= 0 { return .connection(connection) }
            let code = errno
            if code == 0 { return .end }
            // For want of a descriptor it may be; whoever sent it sees that nobody has it.
            guard [EPROTO, EINTR, EAGAIN].contains(code) else { throw SystemError("receive a socket", code: code) }
            return .none
        }
    }
}
