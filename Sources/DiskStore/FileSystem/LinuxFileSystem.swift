import CLinux
import Glibc
import LinuxSupport

/// The file system of the machine.
public struct LinuxFileSystem: FileSystem {
    public init() {}

    public func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32 {
        try open(name, in: directory, Self.flags(for: purpose))
    }

    func open(_ name: FileName, in directory: Int32, _ flags: Int32) throws(SystemError) -> Int32 {
        try check(.open, name.withCString { openat(directory, $0, flags | O_CLOEXEC, 0o600) })
    }

    static func flags(for purpose: OpenPurpose) -> Int32 {
        switch purpose {
        case .root: O_RDONLY | O_DIRECTORY
        case .directory: O_RDONLY | O_DIRECTORY | O_NOFOLLOW
        case .reading: reading
        case .creating: O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW
        case .overwriting: O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        case .keeping: O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        }
    }

    public func openCached(_ path: FileName, in directory: Int32) throws(SystemError) -> Int32 {
        let flags = UInt64(Self.reading | O_CLOEXEC)
        let resolve = CLINUX_RESOLVE_CACHED | CLINUX_RESOLVE_BENEATH | CLINUX_RESOLVE_NO_SYMLINKS
        return try check(.openCached, path.withCString { clinux_openat2(directory, $0, flags, 0, resolve) })
    }

    public func isRemote(_ descriptor: Int32) -> Bool { clinux_is_remote(descriptor) != 0 }

    public func blockSize(_ descriptor: Int32) -> Int {
        var found = statvfs()
        guard fstatvfs(descriptor, &found) == 0 else { return 4096 }
        // f_bsize is the preferred I/O size, 1 MiB on NFS. Some file systems set only f_bsize.
        return Int(clamping: found.f_frsize > 0 ? found.f_frsize : found.f_bsize)
    }

    private static var reading: Int32 { O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | CLINUX_O_NOATIME }

    public func makeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        try check(.makeDirectory, name.withCString { mkdirat(directory, $0, 0o700) })
    }

    public func rename(
        _ name: FileName, in directory: Int32, to newName: FileName, in newDirectory: Int32
    ) throws(SystemError) {
        try check(
            .rename,
            name.withCString { old in newName.withCString { new in renameat(directory, old, newDirectory, new) } })
    }

    public func exchange(_ name: FileName, with other: FileName, in directory: Int32) throws(SystemError) {
        try check(
            .exchange,
            name.withCString { one in
                other.withCString { clinux_rename_exchange(directory, one, directory, $0) }
            })
    }

    public func unlink(_ name: FileName, in directory: Int32) throws(SystemError) {
        try check(.unlink, name.withCString { unlinkat(directory, $0, 0) })
    }

    public func removeDirectory(_ name: FileName, in directory: Int32) throws(SystemError) {
        try check(.removeDirectory, name.withCString { unlinkat(directory, $0, AT_REMOVEDIR) })
    }

    public func status(of descriptor: Int32) throws(SystemError) -> FileStatus {
        var found = stat()
        try check(.statusOfDescriptor, fstat(descriptor, &found))
        return FileStatus(found)
    }

    public func status(of name: FileName, in directory: Int32) throws(SystemError) -> FileStatus {
        var found = stat()
        try check(.statusOfName, name.withCString { fstatat(directory, $0, &found, AT_SYMLINK_NOFOLLOW) })
        return FileStatus(found)
    }

    public func read(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        try check(.read, pread(descriptor, buffer.baseAddress, buffer.count, off_t(offset)))
    }

    public func readCached(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        try check(.readCached, clinux_pread_nowait(descriptor, buffer.baseAddress, buffer.count, offset))
    }

    public func write(
        _ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int {
        try check(.write, pwrite(descriptor, bytes.baseAddress, bytes.count, off_t(offset)))
    }

    public func sync(_ descriptor: Int32) throws(SystemError) { try check(.sync, fsync(descriptor)) }

    public func list(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int {
        try check(.list, clinux_getdents64(descriptor, buffer.baseAddress, buffer.count))
    }

    public func lock(_ descriptor: Int32) throws(SystemError) { try check(.lock, flock(descriptor, LOCK_EX | LOCK_NB)) }

    public func touch(_ descriptor: Int32, at seconds: Int64) throws(SystemError) {
        let unchanged = timespec(tv_sec: 0, tv_nsec: (1 << 30) - 2)  // UTIME_OMIT
        let times = [unchanged, timespec(tv_sec: time_t(seconds), tv_nsec: 0)]
        try check(.touch, futimens(descriptor, times))
    }

    public func close(_ descriptor: Int32) throws(SystemError) { try check(.close, Glibc.close(descriptor)) }

    @discardableResult
    private func check<Count: FixedWidthInteger>(_ call: SystemCall, _ result: Count) throws(SystemError) -> Count {
        if result < 0 { throw SystemError(call, errno) }
        return result
    }
}

extension FileStatus {
    fileprivate init(_ found: stat) {
        let kind: Kind =
            switch found.st_mode & S_IFMT {
            case S_IFREG: .file
            case S_IFDIR: .directory
            case S_IFLNK: .link
            default: .other
            }
        self.init(
            kind: kind, linkCount: UInt64(found.st_nlink), size: Int64(found.st_size), owner: found.st_uid,
            group: found.st_gid, permissions: found.st_mode & 0o7777, device: UInt64(found.st_dev),
            inode: UInt64(found.st_ino), modifiedSeconds: Int64(found.st_mtim.tv_sec),
            modifiedNanoseconds: Int64(found.st_mtim.tv_nsec))
    }
}
