import Glibc
import Logging
import NIOConcurrencyHelpers
import ThumbnailCache

/// The directory in which root's log-out hooks leave markers. Read here, never written: removing them is root's business.
///
/// An empty file `<uid>.<32 hexadecimal digits>` is a marker. Only root can have made it, or the user that the daemon runs
/// as: a directory that anybody else could write into is refused, since a marker is an order to log somebody out.
final class PendingDirectory: Sendable {
    /// Entries of the directory that are looked at. Hooks leave about one for each uid; beyond it something is wrong.
    static let mostEntries = 100_000

    private let path: String
    private let disk: Disk
    private let log: Logger
    /// Names that are no markers and were told of, so that they are told of once.
    private let toldOf = NIOLockedValueBox<Set<FileName>>([])

    /// - Parameter path: absolute.
    init(path: String, disk: Disk, log: Logger) {
        self.path = path
        self.disk = disk
        self.log = log
    }

    /// What is there.
    struct Contents {
        /// All that have a marker's name.
        var present: [LogoutMarker] = []
        /// Those of them that were not known, and are plain files.
        var new: [LogoutMarker] = []
    }

    /// Looks what is there; nothing where the directory is not. Costs a listing, and a status for each marker that is new.
    /// - Parameter known: markers that nothing more is to be told of.
    /// - Throws: when the directory is not to be trusted, cannot be read, or holds more than can be looked at.
    func contents(known: Set<LogoutMarker>) throws -> Contents {
        guard let directory = try open() else { return Contents() }
        let entries = try named { try disk.names(in: directory, limit: Self.mostEntries + 1) }
        guard entries.count <= Self.mostEntries else {
            throw PendingDirectoryError(path, "holds more than \(Self.mostEntries) entries; remove what is no marker")
        }
        toldOf.withLockedValue { $0.formIntersection(entries.map(\.name)) }
        var contents = Contents()
        for entry in entries {
            guard let marker = LogoutMarker(fileName: entry.name) else {
                refuse(entry.name, "its name is not <uid>.<32 hexadecimal digits>")
                continue
            }
            contents.present.append(marker)
            guard !known.contains(marker), let status = try named({ try disk.status(of: entry.name, in: directory) })
            else { continue }
            if status.kind == .file {
                contents.new.append(marker)
            } else {
                refuse(entry.name, "it is no plain file")
            }
        }
        return contents
    }

    private func open() throws -> Directory? {
        let directory: Directory
        let status: FileStatus
        do throws(SystemError) {
            // Links on the way are root's own business; in its place one would lead where others may write.
            let (parent, name) = Self.split(path)
            directory = try disk.openDirectory(name, in: disk.openRoot(parent))
            status = try directory.status()
        } catch {
            if error.isMissing { return nil }
            throw PendingDirectoryError(
                path,
                error.isOfWrongKind
                    ? "is no directory, or a link to one: name the directory itself" : "cannot be opened: \(error)")
        }
        guard status.owner == 0 || status.owner == geteuid() else {
            throw PendingDirectoryError(path, "belongs to uid \(status.owner); it must belong to root")
        }
        guard status.permissions & 0o022 == 0 else {
            let mode = String(status.permissions, radix: 8)
            throw PendingDirectoryError(
                path, "has mode \(mode), writable for others than root; it must have a mode such as 750")
        }
        return directory
    }

    private func named<Result>(_ body: () throws -> Result) throws -> Result {
        do {
            return try body()
        } catch {
            throw PendingDirectoryError(path, "cannot be read: \(error)")
        }
    }

    private func refuse(_ name: FileName, _ reason: String) {
        guard toldOf.withLockedValue({ $0.insert(name).inserted }) else { return }
        log.error(
            "something in the directory of pending log-outs is no marker; it is ignored",
            metadata: ["directory": "\(path)", "name": "\(name.text.debugDescription)", "reason": "\(reason)"])
    }

    /// The directory that a path lies in, and its name there.
    static func split(_ path: String) -> (parent: String, name: FileName) {
        let parts = path.split(separator: "/")
        let parent = "/" + parts.dropLast().joined(separator: "/")
        return (parent, FileName(parts.last.map(String.init) ?? "."))
    }
}

/// Why the pending log-outs cannot be looked at.
struct PendingDirectoryError: Error, CustomStringConvertible {
    let description: String

    init(_ path: String, _ reason: String) {
        description = "the directory of pending log-outs \(path) \(reason)"
    }
}

extension LogoutMarker {
    /// Nil for a name that is none, or is spelled another way.
    init?(fileName: FileName) {
        let parts = fileName.bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 2, let uid = Self.number(parts[0]), parts[1].count == 32 else { return nil }
        let isHexadecimal = parts[1].allSatisfy { byte in
            (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte)
        }
        guard isHexadecimal else { return nil }
        self.init(uid: uid, name: fileName.text)
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> UInt32? {
        let text = String(decoding: digits, as: UTF8.self)
        guard let number = UInt32(text), String(number) == text else { return nil }
        return number
    }
}
