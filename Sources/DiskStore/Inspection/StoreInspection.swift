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
