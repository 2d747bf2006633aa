import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The accounts of subordinate uids, from /etc/subuid.
///
/// The file is read at startup and reload, and if it changed when a uid connects that is in no range.
struct LiveAccounts: Sendable {
    private struct State {
        var accounts = SubordinateUIDs()
        /// The file that was read; nil if it was missing.
        var file: FileIdentity?
        /// Time of the last check for a change, in nanoseconds.
        var checkedAt: Int64?
    }

    var path = "/etc/subuid"
    var directory = AccountDirectory.system
    let log: Logger
    private let state = NIOLockedValueBox(State())

    func account(of uid: UInt32) -> UInt32 { state.withLockedValue { $0.accounts.account(of: uid) } }

    /// Returns the account of a connecting uid. If it is in no range, a change of the file takes effect with the uid's
    /// next connection.
    /// - Parameter pool: reads the file and looks up names, which can take long.
    func account(ofPeer uid: UInt32, at now: Int64, readingOn pool: any BlockingPool) -> UInt32 {
        let (assigned, isDue) = state.withLockedValue { state in
            let assigned = state.accounts.assignedAccount(of: uid)
            guard assigned == nil, state.checkedAt.map({ now - $0 >= Self.pause }) ?? true else {
                return (assigned, false)
            }
            state.checkedAt = now
            return (assigned, true)
        }
        if isDue {
            pool.submit(for: Self.root) {
                if file() != state.withLockedValue({ $0.file }) { read() }
            }
        }
        return assigned ?? uid
    }

    /// Nanoseconds between two checks for a change.
    private static var pause: Int64 { 1_000_000_000 }
    /// The account charged for reading the file.
    private static var root: UInt32 { 0 }
    /// Maximum size of the file in bytes.
    private static var longest: Int { 1 << 20 }

    /// Reads the file. If it is missing, every uid is an account of its own; if it is unreadable, nothing changes.
    func read() {
        // Identified before it is read, so that a concurrent change is noticed at the next check.
        let file = file()
        let accounts = readAccounts()
        state.withLockedValue { state in
            state.file = file
            if let accounts { state.accounts = accounts }
        }
    }

    /// Nil if the file is missing or inaccessible.
    private func file() -> FileIdentity? {
        do throws(SystemError) {
            return try FileIdentity.of(path, followsLinks: true)
        } catch {
            return nil
        }
    }

    private func readAccounts() -> SubordinateUIDs? {
        let text: String
        do throws(PlainFileError) {
            text = try readTextFile(path, limit: Self.longest)
        } catch {
            if error.isMissing { return SubordinateUIDs() }
            log.warning(
                "subordinate uids unreadable; the previous ones stay in force",
                metadata: ["file": "\(path)", "error": "\(error)"])
            return nil
        }
        var problems: [SubordinateUIDs.BadLine] = []
        let accounts = SubordinateUIDs(text) { name in
            do throws(SystemError) {
                return try directory.uid(name)
            } catch {
                log.warning("account lookup failed", metadata: ["file": "\(path)", "error": "\(error)"])
                return nil
            }
        } onBadLine: {
            problems.append($0)
        }
        if let first = problems.first {
            // Each uid of such a range is an account of its own.
            log.warning(
                "invalid lines in the file of subordinate uids ignored",
                metadata: [
                    "file": "\(path)", "lines": "\(problems.count)", "first": "\(first.line)",
                    "reason": "\(first.reason)",
                ])
        }
        return accounts
    }
}
