/// The socket that the daemon serves on: the one that systemd passed, else one of its own.
struct DaemonSocket: Sendable {
    let descriptor: CInt
    /// Where clients find it, for people.
    let name: String
    private let own: ListeningSocket?

    /// - Throws: what ``SocketActivation`` and ``ListeningSocket`` throw.
    init(_ setup: DaemonSetup, _ configuration: Configuration, pid: Int32) throws {
        if let passed = try SocketActivation(environment: setup.environment, pid: pid).descriptor() {
            descriptor = passed
            name = "the socket passed by systemd"
            own = nil
            return
        }
        guard let path = configuration.socket.path else { throw Failure.noPath }
        if let slash = path.lastIndex(of: "/"), slash != path.startIndex {
            try Directories.make(String(path[..<slash]), mode: 0o755)
        }
        let listening = try ListeningSocket(path: path, mode: configuration.socket.mode)
        descriptor = listening.descriptor
        name = path
        own = listening
    }

    /// Removes the socket file, where it is the daemon's own.
    func remove() throws {
        try own?.remove()
    }

    enum Failure: Error, CustomStringConvertible {
        case noPath

        var description: String {
            "no socket was passed and none is configured: set socket.path, or XDG_RUNTIME_DIR"
        }
    }
}
