import CacheCore
import Glibc
import LinuxSupport
import Logging

/// Looks a store over from outside, beside a daemon that works in it or without one. It changes nothing, takes no lock
/// and asks nobody.
///
/// Files come and go while it looks. So what looks wrong is looked at again, a few times with growing pauses, and is
/// reported only if it was the same each time.
public struct StoreInspection: Sendable {
    private let store: InspectedStore
    private let pause: @Sendable (_ look: Int) -> Void
    /// Looks behind the first, at what looked wrong.
    static let looks = 5

    /// Opens the directories and reads `names.key`.
    /// - Parameters:
    ///   - configuration: which directories. ``DiskStoreConfiguration/keys`` says where keys are.
    ///   - caller: the effective uid; whoever is neither root nor the store's account may not read it.
    ///   - pause: waits before each look behind the first, 3.8 s in all unless it is said otherwise.
    /// - Throws: ``StoreStartError``, where there is no store of this format or it may not be read.
    public init(
        _ configuration: DiskStoreConfiguration, system: any FileSystem = ReadOnlyFileSystem(),
        caller: UInt32 = geteuid(),
        pause: @escaping @Sendable (_ look: Int) -> Void = { usleep([50, 250, 500, 1_000, 2_000][$0 - 1] * 1_000) }
    ) throws {
        store = try InspectedStore(configuration, system: system, caller: caller)
        self.pause = pause
    }

    /// Opens everything in the store with the keys that are there.
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

    /// Those that are the same at each further look.
    private func lasting(_ findings: Set<StoreFinding>, opensImages: Bool = true) -> Set<StoreFinding> {
        var findings = findings
        for look in 1...Self.looks where !findings.isEmpty {
            pause(look)
            let again = StoreScan(store, at: findings.map(\.path), opensImages: opensImages)
            again.walk()
            findings.formIntersection(again.findings)
        }
        return findings
    }

    /// What there is of a user: everything that bears one of the user's names.
    /// - Parameter uid: whose user of that name; nil for each uid of which the store has anything.
    public func traces(of user: OpaqueID, uid: UInt32?) throws -> UserTraces {
        var found = try store.traces(of: user, uid: uid)
        for look in 1...Self.looks where !found.isNothing && !found.traces.contains(where: { $0.kind == .key }) {
            // A log-out that has its receipt may be on the way of moving images to the trash.
            pause(look)
            var again = try store.traces(of: user, uid: uid)
            again.traces.removeAll { !found.traces.contains($0) }
            found = again
        }
        if found.isNothing { found.unread = strangers() }
        return found
    }

    /// What bears names that were made under another names.key, as far as can be told: of a kind of which nothing here
    /// fits the keys that are here. Then these are directories of several stores, and a user's names prove nothing.
    private func strangers() -> [UnreadPart] {
        let look = StoreScan(store, opensImages: false)
        look.walk()
        let kinds: Set<StoreProblem> = [.damagedKey, .sessionWithoutKey, .imagesWithoutKey]
        let reason = "no key here opens it, so that nobody can tell whose it is: are these directories of one store?"
        return lasting(
            look.findings.filter { kinds.subtracting(look.fitting).contains($0.problem) }, opensImages: false
        )
        .map { UnreadPart(path: $0.path, reason: reason) }.sorted { $0.path < $1.path }
    }
}

/// A directory and what it is called.
struct InspectedDirectory {
    let directory: Directory
    let path: String

    func path(of name: FileName) -> String { path + "/" + name.text }
}

/// What an inspection looks at: the directories of one store, and the key of its names.
struct InspectedStore: Sendable {
    let disk: Disk
    let algorithms: Algorithms
    /// Whom the daemon runs as, as the state directory has it.
    let account: (uid: UInt32, gid: UInt32)
    let cache: StoreHome
    let state: StoreHome
    /// Of keys and names.key: the state directory or another.
    let keysHome: StoreHome
    let names: NameHashingKey
    let pending: PendingDirectory?
    let costs: DiskCosts
    /// Of all configured directories, each with a slash behind it.
    private let paths: [String]

    /// Whether a path is, or is on the way to, one of the directories: one may lie in another.
    func leads(_ path: String) -> Bool { paths.contains { $0.hasPrefix(path + "/") } }

    init(_ configuration: DiskStoreConfiguration, system: any FileSystem, caller: UInt32) throws {
        disk = try Disk(system: system, openDirectories: 1, random: SecureRandom())
        algorithms = try Algorithms()
        let status: FileStatus
        (state, status) = try StoreHome.opened("state", configuration.stateDirectory, disk)
        account = (status.owner, status.group)
        guard caller == 0 || caller == account.uid else {
            throw StoreStartError(
                "the store belongs to uid \(account.uid) and its files are for nobody else: look at it as root, or as "
                    + "that user")
        }
        cache = try StoreHome.opened("cache", configuration.cacheDirectory, disk).home
        keysHome =
            configuration.keys == .runtime
            ? try StoreHome.opened("runtime", configuration.runtimeDirectory ?? "", disk).home : state
        let (disk, algorithms, cache, keysHome, account) = (disk, algorithms, cache, keysHome, account)
        names = try storeErrors("opening the store") {
            switch try FormatVersion.check(in: cache.directory, path: cache.path, disk: disk) {
            case .current: break
            case .none:
                throw StoreStartError(
                    "there is no store in the cache directory \(cache.path): it has no file "
                        + FormatVersion.fileName.text)
            case .unknown:
                throw StoreStartError(
                    "the cache directory \(cache.path) has an unknown format, of an older thumbcached maybe; the "
                        + "daemon throws its images away at its next start")
            }
            guard
                let names = try NameHashingKey.existing(
                    in: keysHome, of: account.uid, disk: disk, algorithms: algorithms)
            else {
                throw StoreStartError(
                    "there is no \(NameHashingKey.fileName.text) in \(keysHome.path), without which nobody can tell whose "
                        + "what is. With keys = \"runtime\" it lies in the runtime directory")
            }
            return names
        }
        let silent = Logger(label: "inspection") { _ in SwiftLogNoOpLogHandler() }
        pending = configuration.pendingLogouts.map {
            PendingDirectory(path: $0, disk: disk, log: silent, daemon: account)
        }
        paths = [cache.path, state.path, keysHome.path, pending?.path].compactMap { $0.map { "\($0)/" } }
        // Entries of whatever quota, but no more than OpenSSL takes at once.
        costs = DiskCosts(block: system.blockSize(cache.directory.descriptor), longest: 1 << 30)
    }
}
