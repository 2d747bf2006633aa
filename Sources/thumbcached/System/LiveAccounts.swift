import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import ThumbnailCache

/// The accounts as the machine's file says now: read at the start, at a reload, and when somebody connects of whom it did not speak, once it
/// has changed. So those count for an account that was made while the daemon runs.
final class LiveAccounts: Sendable {
    private struct State {
        var accounts = SubordinateUIDs()
        /// Which file that was; nil where there was none.
        var file: FileIdentity?
        /// When somebody last looked whether it is another, in nanoseconds.
        var lookedAt: Int64?
    }

    private let path: String
    private let directory: AccountDirectory
    private let log: Logger
    private let state = NIOLockedValueBox(State())

    init(_ path: String = "/etc/subuid", directory: AccountDirectory = .system, log: Logger) {
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
        if isDue {
            pool.submit(for: Self.root) {
                if self.file() != self.state.withLockedValue({ $0.file }) { self.read() }
            }
        }
        return owner ?? uid
    }

    /// Nanoseconds between two looks.
    private static var pause: Int64 { 1_000_000_000 }
    /// Whose turn that takes: root writes the file.
    private static var root: UInt32 { 0 }
    /// Bytes of the file that are read.
    private static var longest: Int { 1 << 20 }

    /// Reads the file anew. Without one every uid is an account of its own; one that cannot be read changes nothing.
    func read() {
        // Before it is read: what is written meanwhile is another file.
        let file = file()
        let accounts = readAccounts()
        state.withLockedValue { state in
            state.file = file
            if let accounts { state.accounts = accounts }
        }
    }

    /// nil where there is none, or none that can be looked at.
    private func file() -> FileIdentity? {
        do throws(SystemError) {
            return try FileIdentity.of(path, followsLinks: true)
        } catch {
            return nil
        }
    }

    /// What the file says; nil if it cannot be read.
    private func readAccounts() -> SubordinateUIDs? {
        let text: String
        do throws(PlainFileError) {
            text = try readTextFile(path, limit: Self.longest)
        } catch {
            if error.isMissing { return SubordinateUIDs() }
            log.warning(
                "which uids belong to which account cannot be read; each counts as before",
                metadata: ["file": "\(path)", "error": "\(error)"])
            return nil
        }
        var complaints: [SubordinateUIDs.BadLine] = []
        let accounts = SubordinateUIDs(text) { name in
            do throws(SystemError) {
                return try directory.uid(name)
            } catch {
                log.warning("an account cannot be looked up", metadata: ["file": "\(path)", "error": "\(error)"])
                return nil
            }
        } complain: {
            complaints.append($0)
        }
        if let first = complaints.first {
            // Each uid of such a range counts for itself.
            log.warning(
                "lines that say which uids belong to an account were passed over",
                metadata: [
                    "file": "\(path)", "lines": "\(complaints.count)", "first": "\(first.line)",
                    "reason": "\(first.reason)",
                ])
        }
        return accounts
    }
}
