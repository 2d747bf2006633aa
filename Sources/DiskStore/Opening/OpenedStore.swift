import CacheCore
import Glibc
import LinuxSupport
import Logging

/// What a start comes to: everything opened, checked, locked and counted, in the order in which it must happen.
struct OpenedStore {
    let state: Directory
    let users: Directory
    let trash: Directory
    let keys: Directory
    let sessions: Directory
    let names: NameHashingKey
    let epochBase: UInt64
    let locks: StoreLocks

    init(
        _ configuration: DiskStoreConfiguration, disk: Disk, algorithms: Algorithms, random: any RandomSource,
        now: Int64, log: Logger
    ) throws {
        let cache = try StoreHome.checked("cache", configuration.cacheDirectory, disk)
        let stateHome = try StoreHome.checked("state", configuration.stateDirectory, disk)
        let runtimePath = configuration.runtimeDirectory ?? ""
        let runtime = configuration.keys == .runtime ? try StoreHome.checked("runtime", runtimePath, disk) : nil
        let keysHome = runtime ?? stateHome
        state = stateHome.directory
        locks = try StoreLocks([cache, stateHome] + [runtime].compactMap { $0 }, disk: disk)
        // Nothing has been changed up to here.
        let version = try FormatVersion.check(in: cache.directory, path: cache.path, disk: disk)
        users = try Self.directory("users", in: cache.directory, disk)
        trash = try Self.directory("trash", in: cache.directory, disk)
        keys = try Self.directory("keys", in: keysHome.directory, disk, ofLogins: true)
        sessions = try Self.directory("sessions", in: state, disk, ofLogins: true)
        if version != .current {
            if version == .unknown {
                log.warning("the cache directory has an unknown format; its images are thrown away")
                for entry in try disk.names(in: users) {
                    try disk.rename(entry.name, in: users, to: try random.generationID().fileName, in: trash)
                }
            }
            try FormatVersion.write(in: cache.directory, disk: disk)
        }
        try Self.destroyUnusedKeys(runtime, stateHome, runtimePath, disk, log)
        names = try NameHashingKey.found(
            in: keysHome, keys: keys, disk: disk, algorithms: algorithms, random: random, log: log)
        epochBase = try StartCounter.epochBase(in: state, disk: disk, algorithms: algorithms, now: now, log: log)
    }

    /// A directory of the store's own, made if missing. What stands in its stead is removed where images are to be, of
    /// which there is none that could not be fetched again (F24); where log-ins are, it stays, and there is no start.
    private static func directory(
        _ name: FileName, in parent: Directory, _ disk: Disk, ofLogins: Bool = false
    ) throws -> Directory {
        let found = try disk.status(of: name, in: parent)?.kind
        if found != .directory {
            guard found == nil || !ofLogins else {
                throw StoreStartError(
                    "\"\(name.text)\" is no directory where the log-ins are kept; remove what is there")
            }
            if found != nil { try disk.unlink(name, in: parent) }
            try disk.makeDirectory(name, in: parent)
            if ofLogins { try disk.sync(parent) }
        }
        return try disk.openDirectory(name, in: parent)
    }

    /// Keys where this configuration does not look for them: an earlier one did, and a later one might (F51).
    private static func destroyUnusedKeys(
        _ runtime: StoreHome?, _ state: StoreHome, _ runtimePath: String, _ disk: Disk, _ log: Logger
    ) throws {
        if let runtime {
            if try !state.isSame(as: runtime) {
                try NameHashingKey.destroyUnused(in: state.directory, disk: disk, log: log)
            }
            return
        }
        if runtimePath.isEmpty { return }
        do {
            let unused = StoreHome(role: "runtime", path: runtimePath, directory: try disk.openRoot(runtimePath))
            if try unused.isSame(as: state) { return }
            // Locked, lest the keys of a daemon that keeps its own there be destroyed under it.
            let lock = try StoreLocks([unused], disk: disk)
            try withExtendedLifetime(lock) {
                try NameHashingKey.destroyUnused(in: unused.directory, disk: disk, log: log)
            }
        } catch let error as SystemError where error.isMissing || error.isDenied {
            // No keys were ever kept there, or not by this user.
        }
    }
}

/// A directory that the configuration names.
struct StoreHome {
    let role: String
    let path: String
    let directory: Directory

    /// Opens it, whosever it is.
    static func opened(_ role: String, _ path: String, _ disk: Disk) throws -> (home: StoreHome, status: FileStatus) {
        guard path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0) else {
            throw StoreStartError("the \(role) directory must be an absolute path, not \"\(path)\"")
        }
        do {
            let directory = try disk.openRoot(path)
            return (StoreHome(role: role, path: path, directory: directory), try directory.status())
        } catch {
            throw StoreStartError("the \(role) directory \(path) cannot be opened: \(error)")
        }
    }

    /// Opens and checks it.
    static func checked(_ role: String, _ path: String, _ disk: Disk) throws -> StoreHome {
        let (home, status) = try opened(role, path, disk)
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
        return home
    }

    func isSame(as other: StoreHome) throws -> Bool { try directory.status().isSameFile(as: other.directory.status()) }
}

/// One daemon per store: a lock on a file in each directory, which the kernel gives up with the process (F44, F60).
final class StoreLocks: Sendable {
    private let files: [LockFile]

    /// Open as long as it lives, and so is the lock.
    private final class LockFile: Sendable {
        let file: OpenFile
        init(_ file: consuming OpenFile) { self.file = file }
    }

    init(_ homes: [StoreHome], disk: Disk) throws {
        var files: [LockFile] = []
        var statuses: [FileStatus] = []
        for home in homes {
            do {
                let lock = LockFile(try Self.open(in: home.directory, disk))
                let status = try lock.file.status()
                // Two roles may share a directory; the first lock would then refuse the second.
                if statuses.contains(where: { $0.isSameFile(as: status) }) { continue }
                try lock.file.lock()
                files.append(lock)
                statuses.append(status)
            } catch  where error.code == EWOULDBLOCK {
                throw StoreStartError(
                    "another thumbcached uses the \(home.role) directory \(home.path): it holds the lock on the file "
                        + "\"lock\" there. Stop that one, or configure another directory")
            } catch {
                throw StoreStartError("the \(home.role) directory \(home.path) cannot be locked: \(error)")
            }
        }
        self.files = files
    }

    private static func open(in directory: Directory, _ disk: Disk) throws(SystemError) -> OpenFile {
        do {
            return try disk.open("lock", in: directory, for: .keeping)
        } catch {
            if !error.isReadOnly { throw error }
        }
        // One that is there can be locked on a read-only disk, too: flock(2).
        return try disk.open("lock", in: directory, for: .reading)
    }
}

/// The file VERSION in the cache directory: a store of a newer format is refused, since what it means is not known; the
/// images of an unknown older one are thrown away.
enum FormatVersion {
    private static let current = 1
    static let fileName: FileName = "VERSION"
    private static let prefix = "thumbcached "

    enum Found: Equatable {
        case current, none, unknown
    }

    /// Refuses what a newer daemon made.
    static func check(in cache: Directory, path: String, disk: Disk) throws -> Found {
        guard let text = try disk.contents(of: fileName, in: cache, limit: 4096) else { return .none }
        let line = text.withBytes { String(decoding: $0, as: UTF8.self) }
        guard line.hasPrefix(prefix), line.hasSuffix("\n"), let number = Int(line.dropFirst(prefix.count).dropLast())
        else { return .unknown }
        guard number <= current else {
            throw StoreStartError(
                "the cache directory \(path) has format \(number), made by a newer thumbcached; this one knows format "
                    + "\(current). Run the newer one, or configure another directory")
        }
        return number == current ? .current : .unknown
    }

    static func write(in cache: Directory, disk: Disk) throws {
        try disk.replace(fileName, in: cache, with: "\(prefix)\(current)\n".utf8)
    }
}
