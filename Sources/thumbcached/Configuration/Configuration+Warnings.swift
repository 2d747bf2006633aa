import CacheCore
import Glibc
import Logging
import Origins
import ProgramSupport

extension Configuration {
    /// What can be configured and is hardly meant so: the daemon serves with it, and says so at its start and at each
    /// reload, as `--check-config` does.
    var warnings: [ConfigurationError.Problem] {
        access.observers.unknown.map { .init(key: "access.observers", sentence: "\($0), so that is nobody") }
            + cautions + socketWarnings
            + origins.sorted { $0.key < $1.key }.flatMap { name, origin in
                Self.warnings(of: origin).map { .init(key: "origins.\(name).\($0.key)", sentence: $0.reason) }
            }
    }

    /// The owner of a directory can replace the socket in it by another one, which clients would take for the daemon's.
    private var socketWarnings: [ConfigurationError.Problem] {
        guard let path = socket.path, let slash = path.lastIndex(of: "/"), slash != path.startIndex else { return [] }
        let directory = String(path[..<slash])
        // The state directory is the daemon's own, whoever asks.
        guard let owner = Self.owner(of: directory), owner != 0, owner != Self.owner(of: storage.state) ?? geteuid()
        else { return [] }
        let sentence =
            "its directory \(directory) belongs to uid \(owner), which can put another socket in its place: choose a "
            + "directory that belongs to root or to the daemon's user"
        return [.init(key: "socket.path", sentence: sentence)]
    }

    /// Nil where there is nothing, or it cannot be looked at.
    private static func owner(of path: String) -> UInt32? {
        var status = stat()
        return stat(path, &status) == 0 ? status.st_uid : nil
    }

    private static func warnings(of origin: Origin) -> [OriginError] {
        do throws(OriginError) {
            return try OriginRules.warnings(of: origin)
        } catch {
            // Refused when it was read; said rather than passed over.
            return [error]
        }
    }

    func logWarnings(_ log: Logger) {
        for warning in warnings {
            log.warning(
                "the configuration may not be meant so",
                metadata: ["key": "\(warning.key ?? "")", "reason": "\(warning.sentence)"])
        }
    }
}
