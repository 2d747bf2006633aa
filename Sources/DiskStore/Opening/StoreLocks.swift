import Glibc
import LinuxSupport

/// One daemon per store: a lock on a file in each directory, which the kernel gives up with the process (F44, F60).
final class StoreLocks: Sendable {
    private let held: [HeldLock]

    /// - Parameter homes: role, path and directory of each.
    init(_ homes: [(role: String, path: String, directory: Directory)], disk: Disk) throws {
        var held: [HeldLock] = []
        for home in homes {
            do {
                let lock = try HeldLock(in: home.directory, disk)
                // Two roles may share a directory; the first lock would then refuse the second.
                if held.contains(where: { $0.status.isSameFile(as: lock.status) }) { continue }
                try lock.acquire()
                held.append(lock)
            } catch let error as SystemError where error.code == EWOULDBLOCK {
                throw StoreStartError(
                    "another thumbcached uses the \(home.role) directory \(home.path): it holds the lock on the file "
                        + "\"lock\" there. Stop that one, or configure another directory")
            } catch let error as SystemError {
                throw StoreStartError("the \(home.role) directory \(home.path) cannot be locked: \(error)")
            }
        }
        self.held = held
    }
}

private final class HeldLock: Sendable {
    let status: FileStatus
    private let file: OpenFile

    init(in directory: Directory, _ disk: Disk) throws {
        file = try Self.open(in: directory, disk)
        status = try file.status()
    }

    private static func open(in directory: Directory, _ disk: Disk) throws(SystemError) -> OpenFile {
        do {
            return try disk.open("lock", in: directory, for: .keeping)
        } catch {
            if !error.isReadOnly { throw error }
        }
        // One that is there can be locked on a read-only disk, too: flock(2).
        return try disk.open("lock", in: directory, for: .reading)
    }

    func acquire() throws(SystemError) {
        try file.lock()
    }
}
