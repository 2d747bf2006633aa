import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

/// The file system with interrupted and short calls completed (F9). The store makes all its calls through it.
///
/// If the process runs out of descriptors, closes those of ``OpenEntries`` and ``DirectoryCache``, which serve as a
/// reserve for hits and purges (I9), and retries once.
final class Disk: Sendable {
    let system: any FileSystem
    let directories: DirectoryCache
    let openEntries: OpenEntries
    let temporaries: TemporaryNames
    /// Directories whose last fsync failed.
    let failedSyncs = NIOLockedValueBox(FailedSyncs())

    /// - Parameters:
    ///   - openDirectories: maximum number of directories that are kept open.
    ///   - openEntries: maximum number of entry files that are kept open.
    init(system: any FileSystem, openDirectories: Int, openEntries: Int = 0, random: any RandomSource) throws {
        self.system = system
        directories = DirectoryCache(capacity: openDirectories)
        self.openEntries = OpenEntries(capacity: openEntries)
        temporaries = try TemporaryNames(random: random)
    }

    func openRoot(_ path: String) throws(SystemError) -> Directory {
        Directory(try open(FileName(path), in: AT_FDCWD, for: .root), system)
    }

    func openDirectory(_ name: FileName, in directory: Directory) throws(SystemError) -> Directory {
        Directory(try open(name, in: directory.descriptor, for: .directory), system)
    }

    /// Opens a directory; nil if it is missing or not a directory. Links are not followed (F24).
    func existingDirectory(_ name: FileName, in directory: Directory) throws(SystemError) -> Directory? {
        do {
            return try openDirectory(name, in: directory)
        } catch {
            if error.isMissing || error.isWrongKind { return nil }
            throw error
        }
    }

    func open(_ name: FileName, in directory: Directory, for purpose: OpenPurpose) throws(SystemError) -> OpenFile {
        OpenFile(descriptor: try open(name, in: directory.descriptor, for: purpose), system: system)
    }

    /// Opens a file for reading without blocking on the disk. Does not retry.
    func openCached(_ path: FileName, in directory: Directory) throws(SystemError) -> OpenFile {
        OpenFile(descriptor: try system.openCached(path, in: directory.descriptor), system: system)
    }

    func makeDirectory(_ name: FileName, in directory: Directory) throws(SystemError) {
        try system.makeDirectory(name, in: directory.descriptor)
    }

    /// Returns whether this call created the directory.
    @discardableResult
    func makeDirectoryIfAbsent(_ name: FileName, in directory: Directory) throws(SystemError) -> Bool {
        do {
            try makeDirectory(name, in: directory)
            return true
        } catch {
            if error.code != EEXIST { throw error }
            return false
        }
    }

    func rename(
        _ name: FileName, in directory: Directory, to newName: FileName, in newDirectory: Directory
    ) throws(SystemError) {
        try system.rename(name, in: directory.descriptor, to: newName, in: newDirectory.descriptor)
    }

    func exchange(_ name: FileName, with other: FileName, in directory: Directory) throws(SystemError) {
        try system.exchange(name, with: other, in: directory.descriptor)
    }

    func unlink(_ name: FileName, in directory: Directory) throws(SystemError) {
        try system.unlink(name, in: directory.descriptor)
    }

    func unlinkIfPresent(_ name: FileName, in directory: Directory) throws(SystemError) {
        _ = try unlessMissing { () throws(SystemError) in try unlink(name, in: directory) }
    }

    func removeDirectory(_ name: FileName, in directory: Directory) throws(SystemError) {
        try system.removeDirectory(name, in: directory.descriptor)
    }

    /// Returns whether this call removed the directory. Without effect if it is missing, not empty or not a directory.
    @discardableResult
    func removeDirectoryIfEmpty(_ name: FileName, in directory: Directory) throws(SystemError) -> Bool {
        do {
            try removeDirectory(name, in: directory)
            return true
        } catch {
            if ![ENOTEMPTY, EEXIST, ENOENT, ENOTDIR].contains(error.code) { throw error }
            return false
        }
    }

    /// Does not follow links. Nil if the name is missing.
    func status(of name: FileName, in directory: Directory) throws(SystemError) -> FileStatus? {
        try unlessMissing { () throws(SystemError) in try system.status(of: name, in: directory.descriptor) }
    }

    func sync(_ directory: Directory) throws(SystemError) {
        try retryingInterrupts { () throws(SystemError) in try system.sync(directory.descriptor) }
    }

    private func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32 {
        do {
            return try retryingInterrupts { () throws(SystemError) in try system.open(name, in: directory, for: purpose)
            }
        } catch {
            guard error.isOutOfDescriptors else { throw error }
            let hadEntries = openEntries.closeAll()
            guard directories.closeAll() || hadEntries else { throw error }
        }
        return try retryingInterrupts { () throws(SystemError) in try system.open(name, in: directory, for: purpose) }
    }
}

/// Returns nil if the call fails with ENOENT.
@inline(__always)
func unlessMissing<Result>(_ call: () throws(SystemError) -> Result) throws(SystemError) -> Result? {
    do throws(SystemError) {
        return try call()
    } catch {
        if error.isMissing { return nil }
        throw error
    }
}

/// An open directory, closed with the last reference. Lookups stay in it even if its name is moved or replaced (F25).
final class Directory: Sendable {
    let descriptor: Int32
    private let system: any FileSystem

    init(_ descriptor: Int32, _ system: any FileSystem) {
        self.descriptor = descriptor
        self.system = system
    }

    func status() throws(SystemError) -> FileStatus { try system.status(of: descriptor) }

    /// Reads the next entries as getdents64 writes them. Returns 0 at the end, and if the directory has been removed.
    func list(into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try unlessMissing { () throws(SystemError) in
            try retryingInterrupts { () throws(SystemError) in try system.list(descriptor, into: buffer) }
        } ?? 0
    }

    deinit { closeQuietly(descriptor, system) }
}

/// An open file, closed at the end of its scope at the latest.
struct OpenFile: ~Copyable, Sendable {
    fileprivate let descriptor: Int32
    fileprivate let system: any FileSystem
    fileprivate var isOpen = true

    func status() throws(SystemError) -> FileStatus { try system.status(of: descriptor) }

    /// Reads until the buffer is full or the file ends. Returns the number of bytes.
    func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64 = 0) throws(SystemError) -> Int {
        var filled = 0
        while filled < buffer.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: buffer[filled...])
            let position = offset + Int64(filled)
            let count = try retryingInterrupts { () throws(SystemError) in
                try system.read(descriptor, into: rest, at: position)
            }
            if count == 0 { break }
            filled += count
        }
        return filled
    }

    /// Reads from the page cache with one call, without blocking on the disk. May return fewer bytes than available.
    func readCached(into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try system.readCached(descriptor, into: buffer, at: 0)
    }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64 = 0) throws(SystemError) {
        var written = 0
        while written < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[written...])
            let position = offset + Int64(written)
            let count = try retryingInterrupts { () throws(SystemError) in
                try system.write(descriptor, rest, at: position)
            }
            // Otherwise a write that returns 0 would be retried forever.
            if count == 0 { throw SystemError(.write, EIO) }
            written += count
        }
    }

    func sync() throws(SystemError) {
        try retryingInterrupts { () throws(SystemError) in try system.sync(descriptor) }
    }

    func lock() throws(SystemError) {
        try retryingInterrupts { () throws(SystemError) in try system.lock(descriptor) }
    }

    func touch(at seconds: Int64) throws(SystemError) { try system.touch(descriptor, at: seconds) }

    /// Closes the file and reports write errors, which some file systems report only here.
    mutating func close() throws(SystemError) {
        isOpen = false
        try system.close(descriptor)
    }

    deinit { if isOpen { closeQuietly(descriptor, system) } }
}

private func closeQuietly(_ descriptor: Int32, _ system: any FileSystem) {
    do {
        try system.close(descriptor)
    } catch {
        // No data can be lost: the file was only read, or has failed already. The descriptor is closed in any case.
    }
}
