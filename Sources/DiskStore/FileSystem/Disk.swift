import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

/// The file system with its interruptions and short counts completed (F9). Everything above the seam goes through it.
///
/// When the process runs out of descriptors, those of ``DirectoryCache`` are given up and the call is tried
/// once more: they are a reserve that keeps hits and purges going (I9).
final class Disk: Sendable {
    let system: any FileSystem
    let directories: DirectoryCache
    let temporaries: TemporaryNames
    /// Directories whose last fsync failed.
    let failedSyncs = NIOLockedValueBox(FailedSyncs())

    /// - Parameter openDirectories: that are kept open at most.
    init(system: any FileSystem, openDirectories: Int, random: any RandomSource) throws {
        self.system = system
        directories = DirectoryCache(capacity: openDirectories)
        temporaries = try TemporaryNames(random: random)
    }

    /// A configured directory, by its absolute path.
    func openRoot(_ path: String) throws(SystemError) -> Directory {
        Directory(try open(FileName(path), in: AT_FDCWD, for: .root), system)
    }

    func openDirectory(_ name: FileName, in directory: Directory) throws(SystemError) -> Directory {
        Directory(try open(name, in: directory.descriptor, for: .directory), system)
    }

    /// What somebody has planted there is never followed (F24) and counts as missing.
    func existingDirectory(_ name: FileName, in directory: Directory) throws(SystemError) -> Directory? {
        do {
            return try openDirectory(name, in: directory)
        } catch {
            if error.isMissing || error.isOfWrongKind { return nil }
            throw error
        }
    }

    func open(_ name: FileName, in directory: Directory, for purpose: OpenPurpose) throws(SystemError) -> OpenFile {
        OpenFile(descriptor: try open(name, in: directory.descriptor, for: purpose), system: system)
    }

    /// A file to read, opened without waiting for the disk. Nothing is tried twice: that is for those who may wait.
    func openCached(_ path: FileName, in directory: Directory) throws(SystemError) -> OpenFile {
        OpenFile(descriptor: try system.openCached(path, in: directory.descriptor), system: system)
    }

    func makeDirectory(_ name: FileName, in directory: Directory) throws(SystemError) {
        try system.makeDirectory(name, in: directory.descriptor)
    }

    /// Makes a directory. That somebody else has made it is no error.
    /// - Returns: whether it was made by this call.
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

    func exchange(
        _ name: FileName, in directory: Directory, with other: FileName, in otherDirectory: Directory
    ) throws(SystemError) {
        try system.exchange(name, in: directory.descriptor, with: other, in: otherDirectory.descriptor)
    }

    func unlink(_ name: FileName, in directory: Directory) throws(SystemError) {
        try system.unlink(name, in: directory.descriptor)
    }

    /// Unlinks a name; that it is not there is no error.
    func unlinkIfPresent(_ name: FileName, in directory: Directory) throws(SystemError) {
        _ = try unlessMissing { () throws(SystemError) in try unlink(name, in: directory) }
    }

    func removeDirectory(_ name: FileName, in directory: Directory) throws(SystemError) {
        try system.removeDirectory(name, in: directory.descriptor)
    }

    /// Removes a directory if nothing is in it. That it is not there, holds something or is none is no error.
    /// - Returns: whether it was removed.
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

    /// The status of a name itself, of a link and not of what it points to; nil when nothing is there.
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
            guard directories.giveUpAll() else { throw error }
        }
        return try retryingInterrupts { () throws(SystemError) in try system.open(name, in: directory, for: purpose) }
    }
}

/// nil where what is asked for is not there.
@inline(__always)
func unlessMissing<Result>(_ call: () throws(SystemError) -> Result) throws(SystemError) -> Result? {
    do throws(SystemError) {
        return try call()
    } catch {
        if error.isMissing { return nil }
        throw error
    }
}

/// An open directory, closed with the last reference: whoever works in one keeps it open, and names looked up in it
/// stay in it, whatever is swapped around it (F25).
final class Directory: Sendable {
    let descriptor: Int32
    private let system: any FileSystem

    init(_ descriptor: Int32, _ system: any FileSystem) {
        self.descriptor = descriptor
        self.system = system
    }

    func status() throws(SystemError) -> FileStatus { try system.status(of: descriptor) }

    /// Its next entries, as getdents64 writes them; 0 at the end, and where the directory has been removed.
    func list(into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try unlessMissing { () throws(SystemError) in
            try retryingInterrupts { () throws(SystemError) in try system.list(descriptor, into: buffer) }
        } ?? 0
    }

    deinit { closeQuietly(descriptor, system) }
}

/// An open file, closed when it goes out of scope, if not before.
struct OpenFile: ~Copyable, Sendable {
    fileprivate let descriptor: Int32
    fileprivate let system: any FileSystem
    fileprivate var isOpen = true

    func status() throws(SystemError) -> FileStatus { try system.status(of: descriptor) }

    /// Fills `buffer` as far as the file reaches. Returns the bytes read.
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

    /// Fills `buffer` from the page cache in one go, without waiting for the disk. Returns the bytes read, maybe too
    /// few.
    func readCached(into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try system.readCached(descriptor, into: buffer, at: 0)
    }

    /// Writes all of `bytes`.
    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64 = 0) throws(SystemError) {
        var written = 0
        while written < bytes.count {
            let rest = UnsafeRawBufferPointer(rebasing: bytes[written...])
            let position = offset + Int64(written)
            let count = try retryingInterrupts { () throws(SystemError) in
                try system.write(descriptor, rest, at: position)
            }
            // A write of some bytes that writes none and names no error would otherwise be tried for ever.
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

    /// Closes now, for whoever wants to know that what was written has arrived (close reports it on some file systems).
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
        // Nothing that was only read, or that failed already, can be lost here; the descriptor is gone either way.
    }
}
