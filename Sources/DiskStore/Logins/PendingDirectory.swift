import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The directory in which root's log-out hooks leave markers, and from which the daemon removes those that it has
/// processed.
///
/// An empty file `<uid>.<32 hexadecimal digits>` is a marker. Only root can have made it, or the user that the daemon
/// runs as: a directory that anybody else could write into is refused, since a marker is an order to log somebody out.
struct PendingDirectory: LogoutMarkers {
    /// Entries of the directory that are looked at. Hooks leave about one for each uid; beyond it something is wrong.
    static let mostEntries = 100_000

    /// Absolute.
    let path: String
    let disk: Disk
    let log: Logger
    /// Whom the daemon runs as: beside root nobody but it may write there.
    var daemon = (uid: geteuid(), gid: getegid())
    /// Names that are no markers and were told of, so that they are told of once.
    private let toldOf = NIOLockedValueBox<Set<FileName>>([])

    /// The markers that are there; none where the directory is not.
    /// - Throws: when the directory is not to be trusted, cannot be read, or holds more than can be looked at.
    func pending() throws -> [LogoutMarker] {
        guard let directory = try open() else { return [] }
        let entries = try named("read") { try disk.names(in: directory, limit: Self.mostEntries + 1) }
        guard entries.count <= Self.mostEntries else {
            throw problem("holds more than \(Self.mostEntries) entries; remove what is no marker")
        }
        toldOf.withLockedValue { $0.formIntersection(entries.map(\.name)) }
        var found: [LogoutMarker] = []
        for entry in entries {
            guard let marker = LogoutMarker(fileName: entry.name) else {
                refuse(entry.name, "its name is not <uid>.<32 hexadecimal digits>")
                continue
            }
            // Its hook may have removed it meanwhile.
            guard let status = try named("read", { try disk.status(of: entry.name, in: directory) }) else { continue }
            if status.kind == .file {
                found.append(marker)
            } else {
                refuse(entry.name, "it is no plain file")
            }
        }
        return found
    }

    /// One that cannot be removed does not keep the others. Where the directory has gone, so have they.
    func remove(_ processed: [LogoutMarker]) throws {
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
            // A second fsync would prove nothing (F7). Pending again, they are removed anew by the next look.
            for name in removed {
                log.attempt(
                    "a marker whose log-out is done may come back with a loss of power, and log its uid out once more",
                    .warning, ["directory": "\(path)", "name": "\(name.text)"]
                ) { _ = try disk.open(name, in: directory, for: .creating) }
            }
            throw error
        }
        if let failure {
            let remedy = failure.isDenied ? "; it must belong to root and to the daemon's group, with mode 770" : ""
            throw problem("cannot be written to: \(failure)\(remedy)")
        }
    }

    /// The directory, which is to be trusted; nil where it is not there.
    func open() throws -> Directory? {
        let directory: Directory
        let status: FileStatus
        do throws(SystemError) {
            // Links on the way are root's own business; in its stead one would lead where others may write.
            let names = path.split(separator: "/")
            let parent = try disk.openRoot("/" + names.dropLast().joined(separator: "/"))
            directory = try disk.openDirectory(FileName(names.last.map(String.init) ?? "."), in: parent)
            status = try directory.status()
        } catch {
            if error.isMissing { return nil }
            throw problem(
                error.isOfWrongKind
                    ? "is no directory, or a link to one: name the directory itself" : "cannot be opened: \(error)")
        }
        guard status.owner == 0 || status.owner == daemon.uid else {
            throw problem("belongs to uid \(status.owner); it must belong to root")
        }
        // The daemon removes markers by its group. One of the user's own needs no group, and who else is in it nobody
        // knows.
        let isShared = status.owner == 0 && status.group == daemon.gid
        guard status.permissions & (isShared ? 0o002 : 0o022) == 0 else {
            let mode = String(status.permissions, radix: 8)
            throw problem(
                "has mode \(mode) and belongs to gid \(status.group), so that others than root and the daemon "
                    + "can write to it; "
                    + "it must belong to root and to the daemon's group (gid \(daemon.gid)), with mode 770")
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

    /// What is wrong with the directory.
    private func problem(_ reason: String) -> StoreError {
        .failed("the directory of pending log-outs \(path) \(reason)")
    }

    private func refuse(_ name: FileName, _ reason: String) {
        guard toldOf.withLockedValue({ $0.insert(name).inserted }) else { return }
        log.error(
            "something in the directory of pending log-outs is no marker; it is ignored",
            metadata: ["directory": "\(path)", "name": "\(name.text.debugDescription)", "reason": "\(reason)"])
    }
}

extension LogoutMarker {
    /// Nil for a name that is none, or is spelled another way.
    init?(fileName: FileName) {
        let parts = fileName.bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 2, let uid = UInt32(digits: parts[0]), parts[1].count == 32, Hex.isLowerCase(parts[1])
        else { return nil }
        self.init(uid: uid, name: fileName.text)
    }
}
