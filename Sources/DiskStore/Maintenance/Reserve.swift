import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// A file of zeros beside the keys that takes the room which a purge or a log-out on a full disk needs (F4): blocks and
/// an inode. It is given up for that and made anew when there is room.
struct Reserve: Sendable {
    private static let fileName: FileName = "reserve"
    private static let size = 64 << 10

    let disk: Disk
    /// That of the keys.
    let directory: Directory
    private let isThere = NIOLockedValueBox(false)

    /// Does what must not fail for want of room (F4): if it does, once more with the room of the reserve.
    func givingUp(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch let error as SystemError where error.isNoSpace {
            guard try release() else { throw error }
            try body()
        }
    }

    /// Makes it if it is not there. Throws when there is no room, which is no reason not to go on.
    func restore() throws(SystemError) {
        if isThere.withLockedValue({ $0 }) { return }
        if let status = try disk.status(of: Self.fileName, in: directory), status.size == Self.size {
            isThere.withLockedValue { $0 = true }
            return
        }
        try disk.unlinkIfPresent(Self.fileName, in: directory)
        do {
            var file = try disk.open(Self.fileName, in: directory, for: .creating)
            try file.writeZeros(Self.size)
            try file.close()
        } catch {
            do throws(SystemError) {
                try disk.unlinkIfPresent(Self.fileName, in: directory)
            } catch {
                // Of the wrong size: the next attempt makes it anew.
            }
            throw error
        }
        isThere.withLockedValue { $0 = true }
    }

    /// Gives the room up, also what a run before this one has set aside. False when there was none to give.
    private func release() throws(SystemError) -> Bool {
        isThere.withLockedValue { $0 = false }
        guard try disk.status(of: Self.fileName, in: directory) != nil else { return false }
        try disk.unlinkIfPresent(Self.fileName, in: directory)
        return true
    }
}
