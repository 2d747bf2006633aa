import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The directory in which root's logout hooks create pending-logout files.
///
/// A pending-logout file is an empty file named `<uid>.<32 hexadecimal digits>`. It causes a logout, so only root or
/// the daemon's user may create it: a directory writable for other users is rejected.
struct PendingDirectory: PendingLogoutFiles {
    /// Maximum number of entries read. Hooks create about one for each uid.
    static let maximumEntries = 100_000

    let path: String
    let disk: Disk
    let log: Logger
    /// The daemon's user, which may write to the directory beside root.
    var daemon = (uid: geteuid(), gid: getegid())
    /// Invalid names that were logged, so that each is logged once.
    private let logged = NIOLockedValueBox<Set<FileName>>([])

    /// Empty if the directory is missing.
    /// - Throws: if the directory is untrusted, unreadable, or has too many entries.
    func pending() throws -> [PendingLogoutFile] {
        guard let directory = try open() else { return [] }
        let entries = try named("read") { try disk.names(in: directory, limit: Self.maximumEntries + 1) }
        guard entries.count <= Self.maximumEntries else {
            throw problem(
                "holds more than \(Self.maximumEntries) entries; remove those that are not pending-logout files")
        }
        logged.withLockedValue { $0.formIntersection(entries.map(\.name)) }
        var found: [PendingLogoutFile] = []
        for entry in entries {
            guard let pendingFile = PendingLogoutFile(fileName: entry.name) else {
                refuse(entry.name, "its name is not <uid>.<32 hexadecimal digits>")
                continue
            }
            // The hook may have removed it meanwhile.
            guard let status = try named("read", { try disk.status(of: entry.name, in: directory) }) else { continue }
            if status.kind == .file {
                found.append(pendingFile)
            } else {
                refuse(entry.name, "not a plain file")
            }
        }
        return found
    }

    /// Removes processed files, also if one of them cannot be removed.
    func remove(_ processed: [PendingLogoutFile]) throws {
        guard let directory = try open() else { return }
        var removed: [FileName] = []
        var failure: SystemError?
        for name in processed.map({ FileName($0.name) }) {
            do throws(SystemError) {
                try disk.unlinkIfPresent(name, in: directory)
                removed.append(name)
            } catch {
                failure = failure ?? error
            }
        }
        do {
            try named("written to") { try disk.sync(directory) }
        } catch {
            // A second fsync would prove nothing (F7). Recreate the files, so that the next pass removes them again.
            for name in removed {
                log.onFailure(
                    "a processed pending-logout file may reappear after a power loss and log out its uid again",
                    .warning, ["directory": "\(path)", "name": "\(name.text)"]
                ) { _ = try disk.open(name, in: directory, for: .creating) }
            }
            throw error
        }
        if let failure {
            let remedy = failure.isDenied ? "; it must belong to root and the daemon's group, with mode 770" : ""
            throw problem("cannot be written to: \(failure)\(remedy)")
        }
    }

    /// Opens the directory after checking that it is trusted; nil if it is missing.
    func open() throws -> Directory? {
        let directory: Directory
        let status: FileStatus
        do throws(SystemError) {
            // Links in the parent directories are trusted. A link in place of the directory itself is not.
            let names = path.split(separator: "/")
            let parent = try disk.openRoot("/" + names.dropLast().joined(separator: "/"))
            directory = try disk.openDirectory(FileName(names.last.map(String.init) ?? "."), in: parent)
            status = try directory.status()
        } catch {
            if error.isMissing { return nil }
            throw problem(
                error.isWrongKind
                    ? "is not a directory or is a link to one; name the directory itself"
                    : "cannot be opened: \(error)")
        }
        guard status.owner == 0 || status.owner == daemon.uid else {
            throw problem("belongs to uid \(status.owner); it must belong to root")
        }
        // The daemon's group grants it access to root's directory. A directory of the daemon's own user needs no group,
        // whose other members are unknown.
        let isShared = status.owner == 0 && status.group == daemon.gid
        guard status.permissions & (isShared ? 0o002 : 0o022) == 0 else {
            let mode = String(status.permissions, radix: 8)
            throw problem(
                "has mode \(mode) and gid \(status.group), so that users other than root and the daemon can write "
                    + "to it; it must belong to root and the daemon's group (gid \(daemon.gid)), with mode 770")
        }
        return directory
    }

    private func named<Result>(_ what: String, _ body: () throws -> Result) throws -> Result {
        do {
            return try body()
        } catch {
            throw problem("cannot be \(what): \(error)")
        }
    }

    private func problem(_ reason: String) -> StoreError {
        .failed("the directory of pending logouts \(path) \(reason)")
    }

    private func refuse(_ name: FileName, _ reason: String) {
        guard logged.withLockedValue({ $0.insert(name).inserted }) else { return }
        log.error(
            "ignored an invalid entry in the directory of pending logouts",
            metadata: ["directory": "\(path)", "name": "\(name.text.debugDescription)", "reason": "\(reason)"])
    }
}

extension PendingLogoutFile {
    init?(fileName: FileName) {
        let parts = fileName.bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 2, let uid = UInt32(digits: parts[0]), parts[1].count == 32, Hex.isLowerCase(parts[1])
        else { return nil }
        self.init(uid: uid, name: fileName.text)
    }
}
