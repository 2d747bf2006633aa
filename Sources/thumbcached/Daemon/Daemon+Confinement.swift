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

    /// How a fetcher is had: from systemd, else by a program of the daemon's own.
    /// - Throws: ``DaemonError`` where there is no such program.
    static func fetcherLink(_ environment: [String: String]) throws -> any HelperLink {
        let name = "thumbcached-fetcher"
        let link = try helperLink(name, environment[fetcherVariable], arguments: ["--start-fetchers"])
        guard let link else {
            let places = helperPlaces(of: name, for: try ownDirectory()).joined(separator: " or ")
            throw DaemonError("there is no \(name) to download with at \(places): install it there")
        }
        return link
    }

    /// How pictures of other sizes are had; nil where there is no such program: then they are served as they come.
    static func rendererLink(
        _ configuration: Configuration, _ environment: [String: String], _ log: Logger
    ) throws -> (any HelperLink)? {
        let name = "thumbcached-renderer"
        if environment[rendererVariable]?.isEmpty != false {
            switch configuration.renderer.path {
            case .nowhere: return nil
            case .program(let path): return try HelperStarter(program: path)
            case .beside: break
            }
        }
        let link = try helperLink(name, environment[rendererVariable], arguments: [])
        if link == nil {
            log.notice("there is no \(name): pictures are served in the size in which they come")
        }
        return link
    }

    private static func helperLink(
        _ name: String, _ socket: String?, arguments: [String]
    ) throws -> (any HelperLink)? {
        if let socket, !socket.isEmpty { return HelperUnit(path: socket) }
        let places = helperPlaces(of: name, for: try ownDirectory())
        guard let program = places.first(where: { access($0, X_OK) == 0 }) else { return nil }
        return try HelperStarter(program: program, arguments: arguments)
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
