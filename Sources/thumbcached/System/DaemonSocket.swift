import LinuxSupport
import ProgramSupport

/// The listening socket: passed by systemd, or created by the daemon.
struct DaemonSocket: Sendable {
    let descriptor: CInt
    let name: String
    private let own: ListeningSocket?

    /// - Parameter passed: the socket from systemd. Without it, the directory of the configured path must exist.
    init(_ configuration: Configuration.Socket, passed: CInt?) throws {
        if let passed {
            (descriptor, name, own) = (passed, "the socket passed by systemd", nil)
            return
        }
        guard let path = configuration.path else {
            throw DaemonError(
                "no socket: none was passed by systemd and none is configured; set socket.path or XDG_RUNTIME_DIR")
        }
        let listening = try ListeningSocket(path: path, mode: configuration.mode, setting: "socket.path")
        (descriptor, name, own) = (listening.descriptor, path, listening)
    }

    /// Removes the socket file if the daemon created it.
    func remove() throws { try own?.remove() }
}
