import Glibc
import LinuxSupport
import Logging

/// Tells a file from what its path led to before.
struct FileMark: Equatable, Sendable {
    private let device: UInt
    private let inode: UInt
    private let size: Int
    private let seconds: Int
    private let nanoseconds: Int

    /// nil where there is none, or none that can be looked at.
    init?(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        (device, inode, size) = (status.st_dev, status.st_ino, status.st_size)
        (seconds, nanoseconds) = (status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
    }
}

extension SubordinateUIDs {
    /// What a file says; nothing where there is none.
    /// - Returns: nil if it cannot be read.
    init?(reading path: String, directory: AccountDirectory, log: Logger) {
        let text: String
        do throws(PlainFileError) {
            text = try readTextFile(path, limit: SubordinateUIDs.longest)
        } catch {
            if error.isMissing {
                self.init()
                return
            }
            log.warning(
                "which uids belong to which account cannot be read; each counts as before",
                metadata: ["file": "\(path)", "error": "\(error)"])
            return nil
        }
        var (complaints, first): (Int, SubordinateUIDs.BadLine?) = (0, nil)
        self.init(text) { name in
            do throws(SystemError) {
                return try directory.uid(name)
            } catch {
                log.warning("an account cannot be looked up", metadata: ["file": "\(path)", "error": "\(error)"])
                return nil
            }
        } complain: { complaint in
            complaints += 1
            first = first ?? complaint
        }
        if let first {
            // Each uid of such a range counts for itself.
            log.warning(
                "lines that say which uids belong to an account were passed over",
                metadata: [
                    "file": "\(path)", "lines": "\(complaints)", "first": "\(first.line)", "reason": "\(first.reason)",
                ])
        }
    }
}
