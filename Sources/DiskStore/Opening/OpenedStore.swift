import CacheCore
import Glibc
import LinuxSupport
import Logging

/// Opens, checks and locks the directories of a store, in the necessary order.
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
        let cache = try StoreDirectory.checked("cache", configuration.cacheDirectory, disk)
        let stateDirectory = try StoreDirectory.checked("state", configuration.stateDirectory, disk)
        let runtimePath = configuration.runtimeDirectory ?? ""
        let runtime = configuration.keys == .runtime ? try StoreDirectory.checked("runtime", runtimePath, disk) : nil
        let keysDirectory = runtime ?? stateDirectory
        state = stateDirectory.directory
        locks = try StoreLocks([cache, stateDirectory] + [runtime].compactMap { $0 }, disk: disk)
        // The locks are held; files may change from here on.
        let version = try FormatVersion.check(in: cache.directory, path: cache.path, disk: disk)
        users = try Self.directory("users", in: cache, disk)
        trash = try Self.directory("trash", in: cache, disk)
        keys = try Self.directory("keys", in: keysDirectory, disk, ofLogins: true)
        sessions = try Self.directory("sessions", in: stateDirectory, disk, ofLogins: true)
        if version != .current {
            if version == .unrecognized {
                log.warning("unknown format of the cache directory; images discarded")
                for entry in try disk.names(in: users) {
                    try disk.rename(entry.name, in: users, to: try random.generationID().fileName, in: trash)
                }
            }
            try FormatVersion.write(in: cache.directory, disk: disk)
        }
        try Self.destroyUnusedKeys(runtime, stateDirectory, runtimePath, disk, log)
        // Destroys all logins if names.key is missing (F51).
        names = try NameHashingKey.loadOrCreate(
            in: keysDirectory, keys: keys, disk: disk, algorithms: algorithms, random: random, log: log)
        epochBase = try StartCounter.epochBase(in: state, disk: disk, algorithms: algorithms, now: now, log: log)
    }

    /// Opens a directory of the store, created if necessary. Anything else of that name is removed if images belong
    /// there (F24). If logins belong there, the start fails.
    private static func directory(
        _ name: FileName, in place: StoreDirectory, _ disk: Disk, ofLogins: Bool = false
    ) throws -> Directory {
        let parent = place.directory
        let found = try disk.status(of: name, in: parent)?.kind
        if found != .directory {
            guard found == nil || !ofLogins else {
                throw StoreStartError("\(place.path)/\(name.text) is not a directory; move it away")
            }
            if found != nil { try disk.unlink(name, in: parent) }
            try disk.makeDirectory(name, in: parent)
            if ofLogins { try disk.sync(parent) }
        }
        return try disk.openDirectory(name, in: parent)
    }

    /// Destroys keys left by the other value of storage.keys, so that changing it back does not revive old logins
    /// (F51).
    private static func destroyUnusedKeys(
        _ runtime: StoreDirectory?, _ state: StoreDirectory, _ runtimePath: String, _ disk: Disk, _ log: Logger
    ) throws {
        if let runtime {
            if try !state.isSame(as: runtime) {
                try NameHashingKey.destroyUnused(in: state.directory, disk: disk, log: log)
            }
            return
        }
        if runtimePath.isEmpty { return }
        do {
            let unused = StoreDirectory(kind: "runtime", path: runtimePath, directory: try disk.openRoot(runtimePath))
            if try unused.isSame(as: state) { return }
            // Locked, so that the keys of a running daemon are not destroyed.
            let lock = try StoreLocks([unused], disk: disk)
            try withExtendedLifetime(lock) {
                try NameHashingKey.destroyUnused(in: unused.directory, disk: disk, log: log)
            }
        } catch let error as SystemError where error.isMissing || error.isDenied {
            // No keys were stored there, at least not by this user.
        }
    }
}

struct StoreDirectory {
    let kind: String
    let path: String
    let directory: Directory

    static func opened(
        _ kind: String, _ path: String, _ disk: Disk
    ) throws -> (directory: StoreDirectory, status: FileStatus) {
        guard path.utf8.first == UInt8(ascii: "/"), !path.utf8.contains(0) else {
            throw StoreStartError("the \(kind) directory must be an absolute path, not \"\(path)\"")
        }
        do {
            let directory = try disk.openRoot(path)
            return (StoreDirectory(kind: kind, path: path, directory: directory), try directory.status())
        } catch {
            throw StoreStartError("the \(kind) directory \(path) cannot be opened: \(error)")
        }
    }

    static func checked(_ kind: String, _ path: String, _ disk: Disk) throws -> StoreDirectory {
        let (directory, status) = try opened(kind, path, disk)
        guard status.owner == geteuid() else {
            throw StoreStartError(
                "the \(kind) directory \(path) belongs to uid \(status.owner); it must belong to uid \(geteuid()), "
                    + "as which this daemon runs")
        }
        guard status.permissions & 0o022 == 0 else {
            throw StoreStartError(
                "the \(kind) directory \(path) has mode \(String(status.permissions, radix: 8)), writable for others; "
                    + "it must have a mode such as 700 or 755")
        }
        return directory
    }

    func isSame(as other: Self) throws -> Bool { try directory.status().isSameFile(as: other.directory.status()) }
}

/// Ensures one daemon per store with a locked file in each directory. The kernel releases the locks with the process.
final class StoreLocks: Sendable {
    private let files: [LockFile]

    /// Holds the lock as long as it exists.
    private final class LockFile: Sendable {
        let file: OpenFile
        init(_ file: consuming OpenFile) { self.file = file }
    }

    init(_ directories: [StoreDirectory], disk: Disk) throws {
        var files: [LockFile] = []
        var statuses: [FileStatus] = []
        for directory in directories {
            do {
                let lock = LockFile(try Self.open(in: directory.directory, disk))
                let status = try lock.file.status()
                // Two kinds may share a directory, which must be locked once only.
                if statuses.contains(where: { $0.isSameFile(as: status) }) { continue }
                try lock.file.lock()
                files.append(lock)
                statuses.append(status)
            } catch  where error.code == EWOULDBLOCK {
                throw StoreStartError(
                    "another thumbcached uses the \(directory.kind) directory \(directory.path): it holds the lock on "
                        + "the file \"lock\" there. Stop that one, or configure another directory")
            } catch {
                throw StoreStartError("the \(directory.kind) directory \(directory.path) cannot be locked: \(error)")
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
        // An existing file can be locked on a read-only disk, too (flock(2)).
        return try disk.open("lock", in: directory, for: .reading)
    }
}

/// The file VERSION in the cache directory: the format of the whole store. A newer format is rejected; images of an
/// unknown older one are discarded.
///
/// Increase it with each change of a file that an older program would misread, such as a new version of key files or of
/// session records: without that, an older program would end those logins as damaged.
enum FormatVersion {
    private static let current = 1
    static let fileName: FileName = "VERSION"
    private static let prefix = "thumbcached "

    enum Found: Equatable {
        case current, missing, unrecognized
    }

    /// Throws if the format is newer than this program.
    static func check(in cache: Directory, path: String, disk: Disk) throws -> Found {
        guard let text = try disk.contents(of: fileName, in: cache, limit: 4096) else { return .missing }
        let line = text.withBytes { String(decoding: $0, as: UTF8.self) }
        guard line.hasPrefix(prefix), line.hasSuffix("\n"), let number = Int(line.dropFirst(prefix.count).dropLast())
        else { return .unrecognized }
        guard number <= current else {
            throw StoreStartError(
                "the cache directory \(path) has format \(number), made by a newer thumbcached; this one knows format "
                    + "\(current). Run the newer one, or configure another cache and state directory")
        }
        return number == current ? .current : .unrecognized
    }

    static func write(in cache: Directory, disk: Disk) throws {
        try disk.replace(fileName, in: cache, with: "\(prefix)\(current)\n".utf8)
    }
}
