import Glibc
import LinuxSupport

/// A way to reach a helper process. Helpers do what the daemon may not: use the network, or decode an image.
package protocol HelperConnector: Sendable {
    /// Returns a non-blocking socket to a helper. The socket is not shared with other callers.
    /// - Throws: EPIPE if no helper can be started until the daemon is restarted.
    func open() throws(SystemError) -> CInt
}

/// A Unix socket on which systemd listens, and for which it starts the helper: a unit with a uid of its own.
package struct SystemdSocket: HelperConnector {
    private let path: String

    package init(path: String) { self.path = path }

    package func open() throws(SystemError) -> CInt {
        let address = try UnixAddress(path)
        let descriptor = try retryingInterrupts("create a socket") {
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
