import CacheCore
import Glibc
import LinuxSupport
import Logging

/// The directories of one store and the key of its names.
struct InspectedStore: Sendable {
    let disk: Disk
    let algorithms: Algorithms
    /// Owner of the state directory: the account of the daemon.
    let account: (uid: UInt32, gid: UInt32)
    let cache: StoreDirectory
    let state: StoreDirectory
    /// The directory of keys and names.key: the state directory or the runtime directory.
    let keysDirectory: StoreDirectory
    let names: NameHashingKey
    let pending: PendingDirectory?
    let costs: DiskCosts
    /// All configured directories, each with a trailing slash.
    private let paths: [String]

    /// Whether a path contains a configured directory; they may be nested.
    func leads(_ path: String) -> Bool { paths.contains { $0.hasPrefix(path + "/") } }

    init(_ configuration: DiskStoreConfiguration, system: any FileSystem, caller: UInt32) throws {
        disk = try Disk(system: system, openDirectories: 1, random: SecureRandom())
        algorithms = try Algorithms()
        let status: FileStatus
        (state, status) = try StoreDirectory.opened("state", configuration.stateDirectory, disk)
        account = (status.owner, status.group)
        guard caller == 0 || caller == account.uid else {
            throw StoreStartError(
                "the store belongs to uid \(account.uid); inspect it as root or as that user")
        }
        cache = try StoreDirectory.opened("cache", configuration.cacheDirectory, disk).directory
        keysDirectory =
            configuration.keys == .runtime
            ? try StoreDirectory.opened("runtime", configuration.runtimeDirectory ?? "", disk).directory : state
        let (disk, algorithms, cache, keysDirectory, account) = (disk, algorithms, cache, keysDirectory, account)
        names = try storeErrors("opening the store") {
            switch try FormatVersion.check(in: cache.directory, path: cache.path, disk: disk) {
            case .current: break
            case .missing:
                throw StoreStartError(
                    "no store in the cache directory \(cache.path): file \(FormatVersion.fileName.text) missing")
            case .unrecognized:
                throw StoreStartError(
                    "the cache directory \(cache.path) has an unknown format, possibly of an older thumbcached; "
                        + "the daemon discards its images at the next start")
            }
            guard
                let names = try NameHashingKey.load(
                    in: keysDirectory, of: account.uid, disk: disk, algorithms: algorithms)
            else {
                throw StoreStartError(
                    "\(NameHashingKey.fileName.text) is missing in \(keysDirectory.path); without it, user names cannot "
                        + "be recognized. With keys = \"runtime\", it is in the runtime directory")
            }
            return names
        }
        let silent = Logger(label: "inspection") { _ in SwiftLogNoOpLogHandler() }
        pending = configuration.pendingLogouts.map {
            PendingDirectory(path: $0, disk: disk, log: silent, daemon: account)
        }
        paths = [cache.path, state.path, keysDirectory.path, pending?.path].compactMap { $0.map { "\($0)/" } }
        // Entries of any quota, up to OpenSSL's maximum per call.
        costs = DiskCosts(block: system.blockSize(cache.directory.descriptor), maximumEntry: 1 << 30)
    }
}

struct InspectedDirectory {
    let directory: Directory
    let path: String

    func path(of name: FileName) -> String { path + "/" + name.text }
}
