import Glibc
import LinuxSupport

/// The directories that the configuration names, opened and checked.
struct StoreHomes {
    let cache: Directory
    let state: Directory
    /// nil with keys on disk.
    let runtime: Directory?

    /// Where the keys lie.
    var keys: Directory { runtime ?? state }

    init(_ configuration: DiskStoreConfiguration, disk: Disk) throws {
        cache = try Self.open(configuration.cacheDirectory, "cache", disk)
        state = try Self.open(configuration.stateDirectory, "state", disk)
        runtime =
            switch configuration.keys {
            case .disk: nil
            case .runtime: try Self.open(configuration.runtimeDirectory ?? "", "runtime", disk)
            }
    }

    private static func open(_ path: String, _ role: String, _ disk: Disk) throws -> Directory {
        guard path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0) else {
            throw StoreStartError("the \(role) directory must be an absolute path, not \"\(path)\"")
        }
        let directory: Directory
        let status: FileStatus
        do {
            directory = try disk.openRoot(path)
            status = try directory.status()
        } catch {
            throw StoreStartError("the \(role) directory \(path) cannot be opened: \(error)")
        }
        guard status.owner == geteuid() else {
            throw StoreStartError(
                "the \(role) directory \(path) belongs to uid \(status.owner); it must belong to uid \(geteuid()), "
                    + "as which this daemon runs")
        }
        guard status.permissions & 0o022 == 0 else {
            throw StoreStartError(
                "the \(role) directory \(path) has mode \(String(status.permissions, radix: 8)), writable for others; "
                    + "it must have a mode such as 700 or 755")
        }
        return directory
    }
}

/// The store's own directories within its homes, held open while it runs.
struct StoreDirectories {
    let users: Directory
    let trash: Directory
    let keys: Directory
    let sessions: Directory

    /// The locks are held.
    init(in homes: StoreHomes, disk: Disk) throws {
        users = try Self.replaceable("users", in: homes.cache, disk)
        trash = try Self.replaceable("trash", in: homes.cache, disk)
        keys = try Self.kept("keys", in: homes.keys, disk)
        sessions = try Self.kept("sessions", in: homes.state, disk)
    }

    /// A directory of images. What stands in its place is removed: nothing in it that could not be fetched again (F24).
    private static func replaceable(_ name: FileName, in parent: Directory, _ disk: Disk) throws -> Directory {
        let found = try disk.status(of: name, in: parent)?.kind
        if found != .directory {
            if found != nil { try disk.unlink(name, in: parent) }
            try disk.makeDirectory(name, in: parent)
        }
        return try disk.openDirectory(name, in: parent)
    }

    /// A directory of log-ins. What stands in its place stays, and there is no start.
    private static func kept(_ name: FileName, in parent: Directory, _ disk: Disk) throws -> Directory {
        switch try disk.status(of: name, in: parent)?.kind {
        case .directory:
            break
        case nil:
            try disk.makeDirectory(name, in: parent)
            try disk.sync(parent)
        default:
            throw StoreStartError("\"\(name.text)\" is no directory where the log-ins are kept; remove what is there")
        }
        return try disk.openDirectory(name, in: parent)
    }
}
