import CLinux
import Glibc
import LinuxSupport
import ProgramSupport

/// The source of connections to the renderer.
enum Connections {
    /// A listening socket from systemd: sd_listen_fds(3).
    case listener(CInt)
    /// A socket over which the daemon passes one descriptor after another.
    case descriptors(CInt)
    /// The same after ``stopAccepting()``: only descriptors that were sent before.
    case remaining(CInt)
    case ended

    /// Returns the socket from systemd, otherwise standard input.
    static func passed() throws(SocketActivation.Failure) -> Self {
        if let listener = try SocketActivation().descriptor() { return .listener(listener) }
        return .descriptors(STDIN_FILENO)
    }

    /// Readable when the next connection is available; -1 if there will be none.
    var descriptor: CInt {
        switch self {
        case .listener(let descriptor), .descriptors(let descriptor), .remaining(let descriptor): descriptor
        case .ended: -1
        }
    }

    var isEnding: Bool {
        switch self {
        case .listener, .descriptors: false
        case .remaining, .ended: true
        }
    }

    var haveEnded: Bool { descriptor == -1 }

    /// Makes ``next()`` return the connections that have arrived, then ``Next/end``. Later connections start the
    /// program again: systemd keeps its socket, and the daemon finds this one shut down.
    mutating func stopAccepting() {
        switch self {
        case .listener: self = .ended
        case .descriptors(let socket):
            shutdown(socket, CInt(SHUT_RD))
            self = .remaining(socket)
        case .remaining, .ended: break
        }
    }

    mutating func end() { self = .ended }

    enum Next {
        case connection(CInt)
        /// The connection was closed before it was accepted.
        case none
        case end
    }

    func next() throws(SystemError) -> Next {
        switch self {
        case .listener(let listener):
            // Without SOCK_CLOEXEC: neither the program nor a worker executes another program.
            let connection = accept(listener, nil, nil)
            if connection >= 0 { return .connection(connection) }
            let code = errno
            guard [EAGAIN, EINTR, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) else {
                throw SystemError("accept a connection", code: code)
            }
            return .none
        case .descriptors(let socket), .remaining(let socket):
            let connection = clinux_receive_descriptor(socket, nil)
            if connection >= 0 { return .connection(connection) }
            let code = errno
            if code == 0 { return .end }
            // Possibly out of descriptors. The daemon finds its end closed.
            guard [EPROTO, EINTR, EAGAIN].contains(code) else { throw SystemError("receive a connection", code: code) }
            return .none
        case .ended: return .end
        }
    }
}
