import CLinux
import Glibc
import LinuxSupport

/// The file system of the machine without write access: calls that would change something throw EROFS.
public struct ReadOnlyFileSystem: FileSystem {
    private let real = LinuxFileSystem()

    public init() {}

    public func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32 {
        switch purpose {
        case .creating, .overwriting, .keeping: throw SystemError(.open, EROFS)
        case .root, .directory, .reading: break
        }
        let flags = LinuxFileSystem.flags(for: purpose)
        do {
            return try real.open(name, in: directory, flags | CLINUX_O_NOATIME)
        } catch {
            // O_NOATIME requires ownership (open(2)); the directory of pending logouts belongs to root.
            guard error.code == EPERM else { throw error }
            return try real.open(name, in: directory, flags & ~CLINUX_O_NOATIME)
        }
    }

    public func openCached(_ path: FileName, in directory: Int32) throws(SystemError) -> Int32 {
        try real.openCached(path, in: directory)
    }

    public func isRemote(_ descriptor: Int32) -> Bool { real.isRemote(descriptor) }

    public func blockSize(_ descriptor: Int32) -> Int { real.blockSize(descriptor) }

    public func makeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        throw SystemError(.makeDirectory, EROFS)
    }

    public func rename(
        _ name: FileName, in directory: Int32, to newName: FileName, in newDirectory: Int32
    ) throws(SystemError) { throw SystemError(.rename, EROFS) }

    public func exchange(_ name: FileName, with other: FileName, in directory: Int32) throws(SystemError) {
        throw SystemError(.exchange, EROFS)
    }

    public func unlink(_ name: FileName, in directory: Int32) throws(SystemError) { throw SystemError(.unlink, EROFS) }

    public func removeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        throw SystemError(.removeDirectory, EROFS)
    }

    public func status(of descriptor: Int32) throws(SystemError) -> FileStatus { try real.status(of: descriptor) }

    public func status(of name: FileName, in directory: Int32) throws(SystemError) -> FileStatus {
        try real.status(of: name, in: directory)
    }

    public func read(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int { try real.read(descriptor, into: buffer, at: offset) }

    public func readCached(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int { try real.readCached(descriptor, into: buffer, at: offset) }

    public func write(
        _ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int { throw SystemError(.write, EROFS) }

    public func sync(_ descriptor: Int32) throws(SystemError) { throw SystemError(.sync, EROFS) }

    public func list(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try real.list(descriptor, into: buffer)
    }

    public func lock(_ descriptor: Int32) throws(SystemError) { throw SystemError(.lock, EROFS) }

    public func touch(_ descriptor: Int32, at seconds: Int64) throws(SystemError) { throw SystemError(.touch, EROFS) }

    public func close(_ descriptor: Int32) throws(SystemError) { try real.close(descriptor) }
}
