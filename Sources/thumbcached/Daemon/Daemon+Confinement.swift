import Glibc
import LinuxSupport
import Logging

// The daemon holds keys, and so it gives up what it does not need; what speaks to the network is another process, and
// what decodes pictures a third.

extension Daemon {
    /// Set by the unit: where systemd starts a fetcher for whoever connects.
    static let fetcherVariable = "THUMBCACHED_FETCHER"
    /// The same for what makes pictures of other sizes.
    static let rendererVariable = "THUMBCACHED_RENDERER"

    /// How the daemon gets its helpers.
    struct Helpers {
        let fetcher: any HelperConnector
        /// nil if there is none: images are then served in the size in which they come.
        let renderer: (any HelperConnector)?
    }

    /// Finds the helpers: systemd starts them, else a process that this starts.
    /// - Throws: ``DaemonError`` if there is no program to download with.
    static func helpers(
        _ configuration: Configuration, _ environment: [String: String], _ log: Logger
    ) throws -> Helpers {
        func unit(_ variable: String) -> (any HelperConnector)? {
            environment[variable].flatMap { $0.isEmpty ? nil : HelperUnit(path: $0) }
        }
        let (fetcher, renderer) = (unit(fetcherVariable), unit(rendererVariable))
        if let fetcher, let renderer { return Helpers(fetcher: fetcher, renderer: renderer) }
        let rendererProgram = renderer == nil ? try self.rendererProgram(configuration, log) : nil
        let programs = [fetcher == nil ? try fetcherProgram() : nil, rendererProgram].compactMap { $0 }
        if let fetcher, programs.isEmpty { return Helpers(fetcher: fetcher, renderer: renderer) }
        let starter = try HelperStarter(
            "/proc/self/exe", name: "thumbcached", arguments: programs.flatMap { ["--start-helper", $0] },
            programs: programs)
        return Helpers(
            fetcher: fetcher ?? starter.one(0),
            renderer: renderer ?? rendererProgram.map { _ in starter.shared(programs.count - 1) })
    }

    private static func fetcherProgram() throws -> String {
        let name = "thumbcached-fetcher"
        guard let program = try program(name) else {
            let places = helperPlaces(of: name, for: try ownDirectory()).joined(separator: " or ")
            throw DaemonError("there is no \(name) to download with at \(places): install it there")
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
                log.notice("there is no \(name): pictures are served in the size in which they come")
            }
            return program
        }
    }

    private static func program(_ name: String) throws -> String? {
        helperPlaces(of: name, for: try ownDirectory()).first { access($0, X_OK) == 0 }
    }

    /// Where a daemon of this directory looks for one: where it was built, and where it is installed, below any prefix.
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

    private static func parent(of path: String) -> String {
        path.lastIndex(of: "/").map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? ""
    }

    /// From here on the daemon changes its own directories and no others, opens Unix sockets and no others, and starts
    /// no program. It is called before another thread is.
    static func confine(_ configuration: Configuration, _ environment: [String: String], _ log: Logger) throws {
        let storage = configuration.storage
        let pending = configuration.sessions.pendingLogouts
        // What is not there yet can only be allowed with the directory that it will be in.
        let markers = access(pending, F_OK) == 0 ? pending : parent(of: pending)
        var writable = [storage.cache, storage.state, storage.runtime, markers].compactMap { $0 }
        if environment["LISTEN_FDS"] == nil, let socket = configuration.socket.path {
            try makeDirectories(parent(of: socket), mode: 0o755)
            writable.append(parent(of: socket))
        }
        try becomeUndumpable()
        if Confinement.isInTheWayOfThisBuild { return }
        let lacks = try Confinement(
            readable: ["/"], writable: writable.filter { !$0.isEmpty && access($0, F_OK) == 0 }, sockets: .unix
        ).apply()
        for lack in lacks { log.notice("it is confined less than it could be", metadata: ["reason": "\(lack)"]) }
    }
}
