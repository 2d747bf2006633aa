import CLinux
import Glibc
import LinuxSupport

/// Where the program's connections come from.
enum Connections {
    /// A listening socket from systemd: sd_listen_fds(3).
    case listener(CInt)
    /// A socket through which the daemon that started the program hands over one descriptor after another.
    case handedOver(CInt)
    /// The same after ``endWaiting()``: only what was sent before.
    case remaining(CInt)
    case ended

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

    /// What to watch for the next; -1 if there is no next.
    var descriptor: CInt {
        switch self {
        case .listener(let descriptor), .handedOver(let descriptor), .remaining(let descriptor): descriptor
        case .ended: -1
        }
    }

    var isEnding: Bool {
        switch self {
        case .listener, .handedOver: false
        case .remaining, .ended: true
        }
    }

    var haveEnded: Bool { descriptor == -1 }

    /// Makes ``next()`` return what has come by now, then ``Next/end``. What comes later starts the program again: systemd
    /// keeps its socket, and the daemon sees that this one does not receive any more.
    mutating func endWaiting() {
        switch self {
        case .listener: self = .ended
        case .handedOver(let socket):
            shutdown(socket, CInt(SHUT_RD))
            self = .remaining(socket)
        case .remaining, .ended: break
        }
    }

    /// Ends ``descriptor``.
    mutating func forget() { self = .ended }

    enum Next {
        case connection(CInt)
        /// The connection was closed before it was accepted.
        case none
        /// No more connections can come.
        case end
    }

    /// The next connection, if there is one.
    func next() throws(SystemError) -> Next {
        switch self {
        case .listener(let listener):
            // Neither the program nor a worker executes another, for which this descriptor could stay open.
            let connection = accept(listener, nil, nil)
            if connection >= 0 { return .connection(connection) }
            let code = errno
            guard [EAGAIN, EINTR, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) else {
                throw SystemError("accept a connection", code: code)
            }
            return .none
        case .handedOver(let socket), .remaining(let socket):
            let connection = clinux_receive_descriptor(socket, nil)
            if connection >= 0 { return .connection(connection) }
            let code = errno
            if code == 0 { return .end }
            // Possibly for want of a descriptor. The daemon sees that its end is closed.
            guard [EPROTO, EINTR, EAGAIN].contains(code) else { throw SystemError("receive a socket", code: code) }
            return .none
        case .ended: return .end
        }
    }
}
