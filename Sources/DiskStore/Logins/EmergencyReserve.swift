import LinuxSupport

/// A file of zeros beside the keys. It reserves the blocks and the inode that a purge or logout needs on a full disk
/// (F4). It is removed when needed and recreated when there is room.
struct EmergencyReserve: Sendable {
    static let fileName: FileName = "reserve"
    private static let size = 64 << 10

    let disk: Disk
    let directory: Directory
    /// Called after the reserve is released, so that it is restored later.
    var whenReleased: @Sendable () -> Void = {}

    /// Runs `body` and, if the disk is full, releases the reserve and runs it again (F4).
    func retryingWithReserve(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch let error as SystemError where error.isNoSpace {
            // Another thread may have released it already; there is room then, too.
            try release()
            whenReleased()
            try body()
        }
    }

    /// Creates the reserve if it is missing. Throws if there is no room, which is harmless.
    func restore() throws(SystemError) {
        if let status = try disk.status(of: Self.fileName, in: directory), status.size == Self.size { return }
        try disk.unlinkIfPresent(Self.fileName, in: directory)
        do {
            var file = try disk.open(Self.fileName, in: directory, for: .creating)
            try file.writeZeros(Self.size)
            try file.close()
        } catch {
            // An incomplete file has the wrong size; the next attempt replaces it.
            disk.unlinkIfPossible(Self.fileName, in: directory)
            throw error
        }
    }

    private func release() throws(SystemError) { try disk.unlinkIfPresent(Self.fileName, in: directory) }
}
