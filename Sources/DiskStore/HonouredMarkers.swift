import Logging
import NIOConcurrencyHelpers
import ThumbnailCache

/// Which markers of pending log-outs have been honoured: the file `honoured-logouts` in the state directory, one name a line.
///
/// A marker that stays where it is must not log anybody out again who has come back since. Names whose marker
/// is gone are forgotten with the next one that is kept, so the file is never longer than that directory.
final class HonouredMarkers: Sendable {
    static let fileName: FileName = "honoured-logouts"
    /// Bytes: as many markers as are ever looked at, each a uid, a dot, 32 digits and a line break.
    private static let longest = PendingDirectory.mostEntries * (10 + 1 + 32 + 1)

    private let disk: Disk
    private let state: Directory
    private let log: Logger
    /// nil until it is read.
    private let known = NIOLockedValueBox<Set<LogoutMarker>?>(nil)

    init(disk: Disk, state: Directory, log: Logger) {
        self.disk = disk
        self.state = state
        self.log = log
    }

    /// Keeps `honoured` on record, beside those of the others that are still `present`. Durable when it returns; throws
    /// with nothing changed, as far as can be told.
    func record(_ honoured: [LogoutMarker], present: [LogoutMarker]) throws {
        let names = try markers().intersection(present).union(honoured)
        let text = names.map { $0.name + "\n" }.sorted().joined()
        try Array(text.utf8).withUnsafeBytes { bytes in
            try disk.replace(Self.fileName, in: state, with: bytes) { () throws(SystemError) in try disk.sync(state) }
        }
        known.withLockedValue { $0 = names }
    }

    /// Those on record.
    func markers() throws -> Set<LogoutMarker> {
        if let known = known.withLockedValue({ $0 }) { return known }
        guard let file = try disk.contents(of: Self.fileName, in: state, limit: Self.longest) else { return [] }
        let lines = file.withBytes { $0.split(separator: UInt8(ascii: "\n")).map { FileName(.init(rebasing: $0)) } }
        let markers = lines.compactMap { LogoutMarker(fileName: $0) }
        if markers.count < lines.count {
            // To honour one twice logs somebody out who need not be; to pass over one would keep what is to go.
            log.warning("the record of honoured log-outs is damaged; some may be honoured again")
        }
        let found = Set(markers)
        known.withLockedValue { $0 = found }
        return found
    }
}

extension DiskStore {
    /// The markers in the directory that the configuration names; nil where it names none.
    public var logoutMarkers: (any LogoutMarkers)? { markers }
}

/// Both halves: what is there, and what of it was honoured.
final class StoredMarkers: LogoutMarkers {
    private let directory: PendingDirectory
    private let honoured: HonouredMarkers

    init(_ directory: PendingDirectory, _ honoured: HonouredMarkers) {
        self.directory = directory
        self.honoured = honoured
    }

    func pending() throws -> [LogoutMarker] {
        try storeErrors("looking for pending log-outs") { try directory.contents(known: honoured.markers()).new }
    }

    func record(_ done: [LogoutMarker]) throws {
        try storeErrors("recording a pending log-out as done") {
            let known = try honoured.markers()
            try honoured.record(done, present: directory.contents(known: known.union(done)).present)
        }
    }
}
