import Glibc
import LinuxSupport

/// The position on disk. Only one relay at a time has it: the directory is locked.
struct PositionFile: Sendable {
    private let path: String
    /// Open for as long as the program runs: its lock goes with it.
    private let directory: CInt

    private static let name = "position"
    private static let temporaryName = "position.new"
    private static let longest = 4 << 10

    /// - Throws: also where another relay has it.
    init(directory path: String) throws(SystemError) {
        self.path = path
        try makeDirectories(path, mode: 0o700)
        directory = try retryingInterrupts("open \(path)") { open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard flock(directory, LOCK_EX | LOCK_NB) == 0 else {
            let code = errno
            throw SystemError(
                code == EWOULDBLOCK ? "another relay keeps its position in \(path)" : "lock \(path)", code: code)
        }
    }

    /// Nil where there is none. What is there and is no position is none, too: then log-outs may have been missed.
    func load() throws(SystemError) -> Position? {
        let bytes: [UInt8]
        do throws(SystemError) {
            bytes = try File(Self.name, O_RDONLY | O_NOFOLLOW, in: directory).readAll(limit: Self.longest)
        } catch {
            if error.code == ENOENT { return nil }
            throw error
        }
        return String(validating: bytes, as: UTF8.self).flatMap { Position(text: $0) }
    }

    /// Returns when it is durable. Where it throws, the old one or the new one is there after a loss of power.
    func save(_ position: Position) throws(SystemError) {
        // A new file each time: one whose fsync failed may say that it is durable the next time and not be.
        guard unlinkat(directory, Self.temporaryName, 0) == 0 || errno == ENOENT else {
            throw SystemError("remove \(path)/\(Self.temporaryName)")
        }
        let file = try File(Self.temporaryName, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600, in: directory)
        try file.write(Array(position.text.utf8))
        let descriptor = file.descriptor
        _ = try retryingInterrupts("make \(path)/\(Self.temporaryName) durable") { fsync(descriptor) }
        try file.close()
        guard renameat(directory, Self.temporaryName, directory, Self.name) == 0 else {
            throw SystemError("rename \(path)/\(Self.temporaryName)")
        }
        _ = try retryingInterrupts("make \(path) durable") { fsync(directory) }
    }
}
