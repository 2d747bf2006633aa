import CacheCore
import Glibc
import LinuxSupport
import Logging

/// Inspects a store, with or without a running daemon. Changes nothing and takes no lock. Files may change during a
/// scan, so a problem is reported only if several later scans, with growing pauses, find it unchanged.
public struct StoreInspection: Sendable {
    private let store: InspectedStore
    private let pause: @Sendable (_ scan: Int) -> Void
    /// Number of scans after the first, of suspicious paths only.
    static let rescans = 5

    /// Opens the directories and reads `names.key`.
    /// - Parameters:
    ///   - configuration: the directories; ``DiskStoreConfiguration/keys`` selects where keys are.
    ///   - caller: the effective uid, which must be root's or that of the store.
    ///   - pause: waits before each scan after the first; by default 3.8 s in total.
    /// - Throws: ``StoreStartError`` if there is no store of this format, or it must not be read.
    public init(
        _ configuration: DiskStoreConfiguration, system: any FileSystem = ReadOnlyFileSystem(),
        caller: UInt32 = geteuid(),
        pause: @escaping @Sendable (_ scan: Int) -> Void = { usleep([50, 250, 500, 1_000, 2_000][$0 - 1] * 1_000) }
    ) throws {
        store = try InspectedStore(configuration, system: system, caller: caller)
        self.pause = pause
    }

    /// Scans the whole store and decrypts all images.
    public func report() -> StoreReport {
        let first = StoreScan(store)
        first.walk()
        var report = first.report
        report.findings = lasting(first.findings).sorted {
            ($0.path, $0.problem.rawValue) < ($1.path, $1.problem.rawValue)
        }
        report.unread = first.unread.sorted { $0.path < $1.path }
        return report
    }

    private func lasting(_ findings: Set<StoreFinding>, opensImages: Bool = true) -> Set<StoreFinding> {
        var findings = findings
        for scan in 1...Self.rescans where !findings.isEmpty {
            pause(scan)
            let again = StoreScan(store, at: findings.map(\.path), opensImages: opensImages)
            again.walk()
            findings.formIntersection(again.findings)
        }
        return findings
    }

    /// Finds all file names that belong to a user.
    /// - Parameter uid: the uid to search; nil for every uid in the store.
    public func traces(of user: OpaqueID, uid: UInt32?) throws -> UserTraces {
        var found = try store.traces(of: user, uid: uid)
        for scan in 1...Self.rescans where !found.isNothing && !found.traces.contains(where: { $0.kind == .key }) {
            // After a receipt for a logout, images may still be on their way to the trash.
            pause(scan)
            var again = try store.traces(of: user, uid: uid)
            again.traces.removeAll { !found.traces.contains($0) }
            found = again
        }
        if found.isNothing { found.unread = strangers() }
        return found
    }

    /// Reports files whose names may come from another names.key: kinds of which no file fits the current keys. The
    /// directories then belong to several stores, and absence of a user's names proves nothing.
    private func strangers() -> [UnreadPart] {
        let scan = StoreScan(store, opensImages: false)
        scan.walk()
        let kinds: Set<StoreProblem> = [.damagedKey, .sessionWithoutKey, .imagesWithoutKey]
        let reason = "no key decrypts it, so its user is unknown; do all directories belong to one store?"
        return lasting(
            scan.findings.filter { kinds.subtracting(scan.fitting).contains($0.problem) }, opensImages: false
        )
        .map { UnreadPart(path: $0.path, reason: reason) }.sorted { $0.path < $1.path }
    }
}

struct InspectedDirectory {
    let directory: Directory
    let path: String

    func path(of name: FileName) -> String { path + "/" + name.text }
}

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
