import Logging
import NIOConcurrencyHelpers
import ThumbnailCache

/// The accounts as the machine's file says now: read at the start, at a reload, and when somebody connects of whom it did not speak, once it
/// has changed. So those count for an account that was made while the daemon runs.
final class LiveAccounts: Sendable {
    private struct State {
        var accounts = SubordinateUIDs()
        /// Which file that was; nil where there was none.
        var mark: FileMark?
        /// When somebody last looked whether it is another, in nanoseconds.
        var lookedAt: Int64?
    }

    private let path: String
    private let directory: AccountDirectory
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    init(_ path: String = SubordinateUIDs.file, directory: AccountDirectory = .system, log: Logger) {
        self.path = path
        self.directory = directory
        self.log = log
    }

    func account(of uid: UInt32) -> UInt32 { state.withLockedValue { $0.accounts.account(of: uid) } }

    /// The same of a uid that connects. If it is in nobody's range the file is looked at behind it, so that its next connection is known.
    /// - Parameters:
    ///   - now: nanoseconds of a clock that nobody sets.
    ///   - pool: where files are looked at; names of accounts may be looked up there, which can take long.
    func account(ofPeer uid: UInt32, at now: Int64, lookingOn pool: any BlockingPool) -> UInt32 {
        let (owner, isDue) = state.withLockedValue { state in
            let owner = state.accounts.owner(of: uid)
            guard owner == nil, state.lookedAt.map({ now - $0 >= Self.pause }) ?? true else { return (owner, false) }
            state.lookedAt = now
            return (owner, true)
        }
        if isDue { pool.submit(for: Self.root) { self.readIfChanged() } }
        return owner ?? uid
    }

    /// Nanoseconds between two looks.
    private static var pause: Int64 { 1_000_000_000 }
    /// Whose turn that takes: root writes the file.
    private static var root: UInt32 { 0 }

    private func readIfChanged() {
        let mark = FileMark(path)
        if mark != state.withLockedValue({ $0.mark }) { read() }
    }

    /// Reads the file anew. Without one every uid is an account of its own; one that cannot be read changes nothing.
    func read() {
        // Before it is read: what is written meanwhile is another file.
        let mark = FileMark(path)
        let accounts = SubordinateUIDs(reading: path, directory: directory, log: log)
        state.withLockedValue { state in
            state.mark = mark
            if let accounts { state.accounts = accounts }
        }
    }
}
