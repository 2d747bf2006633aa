import CacheCore
import Glibc
import Logging
import Origins
import ProgramSupport

extension Configuration {
    /// Warnings about valid settings that are probably mistakes, for the log and for `--check-config`.
    var warnings: [ConfigurationError.Problem] {
        access.observers.unknown.map { .init(key: "access.observers", sentence: "\($0), which is ignored") }
            + cautions + socketWarnings
            + origins.sorted { $0.key < $1.key }.flatMap { name, origin in
                Self.warnings(of: origin).map { .init(key: "origins.\(name).\($0.key)", sentence: $0.reason) }
            }
    }

    /// The owner of the socket's directory can replace the socket, and clients would connect to the replacement.
    private var socketWarnings: [ConfigurationError.Problem] {
        guard let path = socket.path, let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return [] }
        let directory = String(path[..<slash])
        // The owner of the state directory is the daemon's user, also when another user runs --check-config.
        guard let owner = Self.owner(of: directory), owner != 0, owner != Self.owner(of: storage.state) ?? geteuid()
        else { return [] }
        let sentence =
            "its directory \(directory) belongs to uid \(owner), which can replace the socket; choose a directory that "
            + "belongs to root or to the daemon's user"
        return [.init(key: "socket.path", sentence: sentence)]
    }

    /// Nil if the file is missing or inaccessible.
    private static func owner(of path: String) -> UInt32? {
        var status = stat()
        return stat(path, &status) == 0 ? status.st_uid : nil
    }

    private static func warnings(of origin: Origin) -> [OriginError] {
        do throws(OriginError) {
            return try OriginRules.warnings(of: origin)
        } catch {
            // Unreachable: reading the configuration would have failed.
            return [error]
        }
    }

    func logWarnings(_ log: Logger) {
        for warning in warnings {
            log.warning(
                "configuration warning",
                metadata: ["key": "\(warning.key ?? "")", "reason": "\(warning.sentence)"])
        }
    }
}
