import Glibc
import HelperClient
import LinuxSupport
import Logging

/// The daemon holds keys and clients; the helpers use the network and decode images in processes of their own.
extension Daemon {
    /// Set by the unit: the socket at which systemd starts a fetcher.
    static let fetcherVariable = "THUMBCACHED_FETCHER"
    /// Set by the unit: the socket at which systemd starts a renderer.
    static let rendererVariable = "THUMBCACHED_RENDERER"
    /// The first argument of a fork server. Its other arguments are the programs.
    static let forkServerArgument = "--fork-server"

    struct Helpers {
        let fetcher: any HelperConnector
        /// Nil without a renderer: images are then served unscaled.
        let renderer: (any HelperConnector)?
    }

    /// Finds the helpers. Without systemd, a copy of this program starts them. Throws if there is no fetcher.
    static func helpers(
        _ configuration: Configuration, _ environment: [String: String], _ log: Logger
    ) throws -> Helpers {
        func unit(_ variable: String) -> (any HelperConnector)? {
            environment[variable].flatMap { $0.isEmpty ? nil : SystemdSocket(path: $0) }
        }
        let (fetcher, renderer) = (unit(fetcherVariable), unit(rendererVariable))
        if let fetcher, let renderer { return Helpers(fetcher: fetcher, renderer: renderer) }
        let rendererProgram = renderer == nil ? try self.rendererProgram(configuration, log) : nil
        let programs = [fetcher == nil ? try fetcherProgram() : nil, rendererProgram].compactMap { $0 }
        if let fetcher, programs.isEmpty { return Helpers(fetcher: fetcher, renderer: renderer) }
        let server = try ForkServer(
            "/proc/self/exe", name: "thumbcached", arguments: [forkServerArgument] + programs, programs: programs)
        return Helpers(
            fetcher: fetcher ?? server.perConnection(0),
            renderer: renderer ?? rendererProgram.map { _ in server.shared(programs.count - 1) })
    }

    private static func fetcherProgram() throws -> String {
        let name = "thumbcached-fetcher"
        guard let program = try program(name) else {
            let places = helperPlaces(of: name, for: try ownDirectory()).joined(separator: " or ")
            throw DaemonError("cannot find \(name), which downloads images, at \(places)")
        }
        return program
    }

    private static func rendererProgram(_ configuration: Configuration, _ log: Logger) throws -> String? {
        let name = "thumbcached-renderer"
        switch configuration.renderer.path {
        case .nowhere: return nil
        case .program(let path):
            guard access(path, X_OK) == 0 else { throw SystemError("start \(path)") }
            return path
        case .beside:
            let program = try program(name)
            if program == nil {
                log.notice("no renderer found; images are served unscaled", metadata: ["program": "\(name)"])
            }
            return program
        }
    }

    private static func program(_ name: String) throws -> String? {
        helperPlaces(of: name, for: try ownDirectory()).first { access($0, X_OK) == 0 }
    }

    /// Candidate paths of a helper: the daemon's directory, as in a build, and the `libexec` directory next to it.
    static func helperPlaces(of name: String, for directory: String) -> [String] {
        [directory, "\(parent(of: directory))/libexec"].map { "\($0)/\(name)" }
    }

    private static func ownDirectory() throws(SystemError) -> String {
        var path = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &path, path.count)
        guard count > 0 else { throw SystemError("read /proc/self/exe") }
        let bytes = path.prefix(count).map { UInt8(bitPattern: $0) }
        return String(decoding: bytes.prefix(bytes.lastIndex(of: UInt8(ascii: "/")) ?? 0), as: UTF8.self)
    }

    static func parent(of path: String) -> String {
        path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? ""
    }

    /// Restricts the process: it can write only to its own directories, open only Unix sockets, and start no programs.
    /// If the directory of pending logouts is missing, the process can also write to its parent. Must be called before
    /// the process has other threads.
    static func confine(_ configuration: Configuration, _ socketDirectory: String?, _ log: Logger) throws {
        let storage = configuration.storage
        let pending = configuration.sessions.pendingLogouts
        // Landlock can allow a missing directory only through its parent.
        let pendingFiles = access(pending, F_OK) == 0 ? pending : parent(of: pending)
        let writable = [storage.cache, storage.state, storage.runtime, pendingFiles, socketDirectory].compactMap { $0 }
        try becomeUndumpable()
        if Confinement.isUnsupportedByThisBuild { return }
        let missingFeatures = try Confinement(
            readable: ["/"], writable: writable.filter { !$0.isEmpty && access($0, F_OK) == 0 }, sockets: .unix
        ).apply()
        for feature in missingFeatures { log.notice("confinement incomplete", metadata: ["reason": "\(feature)"]) }
    }
}
