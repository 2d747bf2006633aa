import Glibc
import LinuxSupport

/// The position on disk. The directory is locked against other relays.
struct PositionFile: Sendable {
    private let path: String
    /// Open until the program exits, since closing it releases the lock.
    private let directory: CInt

    private static let name = "position"
    private static let temporaryName = "position.new"
    private static let longest = 4 << 10

    /// - Throws: also if another relay holds the lock.
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

    /// Nil if the file is missing or invalid, which is a gap.
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

    /// Returns when the position is durable. After an error and a power cut, either the old or the new one remains.
    func save(_ position: Position) throws(SystemError) {
        // A new file each time: after a failed fsync, a second one of the same file may succeed without effect.
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
