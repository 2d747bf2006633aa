import Glibc
import LinuxSupport

/// The system calls that the store makes; the seam at which tests inject faults.
///
/// Each function makes one call and reports its result unchanged: an interrupted call throws EINTR, a short write
/// returns a short count. ``Disk`` completes them. All descriptors have O_CLOEXEC; only ``OpenPurpose/root`` follows
/// links.
public protocol FileSystem: Sendable {
    /// openat(2).
    func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32
    /// openat2(2) for reading with RESOLVE_CACHED: throws EAGAIN if it would block on the disk. The name may be a path;
    /// links on it are not followed, and it stays beneath the directory.
    func openCached(_ path: FileName, in directory: Int32) throws(SystemError) -> Int32
    /// fstatfs(2): whether the file system depends on another machine or process, which may not respond. True also if
    /// unknown.
    func isRemote(_ descriptor: Int32) -> Bool
    /// fstatvfs(3): allocation unit of the file system in bytes; 4096 if unknown.
    func blockSize(_ descriptor: Int32) -> Int
    /// mkdirat(2) with mode 0700.
    func makeDirectory(_ name: FileName, in directory: Int32) throws(SystemError)
    /// renameat(2).
    func rename(_ name: FileName, in directory: Int32, to newName: FileName, in newDirectory: Int32) throws(SystemError)
    /// renameat2(2) with RENAME_EXCHANGE: swaps two names atomically.
    func exchange(_ name: FileName, with other: FileName, in directory: Int32) throws(SystemError)
    /// unlinkat(2).
    func unlink(_ name: FileName, in directory: Int32) throws(SystemError)
    /// unlinkat(2) with AT_REMOVEDIR.
    func removeDirectory(_ name: FileName, in directory: Int32) throws(SystemError)
    /// fstat(2).
    func status(of descriptor: Int32) throws(SystemError) -> FileStatus
    /// fstatat(2) with AT_SYMLINK_NOFOLLOW.
    func status(of name: FileName, in directory: Int32) throws(SystemError) -> FileStatus
    /// pread(2): returns the bytes read, 0 at the end of the file.
    func read(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int
    /// preadv2(2) with RWF_NOWAIT: returns the bytes read from the page cache. Throws EAGAIN if it holds none,
    /// EOPNOTSUPP on file systems without support.
    func readCached(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int
    /// pwrite(2): returns the bytes written.
    func write(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(SystemError) -> Int
    /// fsync(2) of a file or directory.
    func sync(_ descriptor: Int32) throws(SystemError)
    /// getdents64(2): returns the bytes filled with entries, 0 at the end of the directory.
    func list(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int
    /// flock(2) with LOCK_EX and LOCK_NB: throws EWOULDBLOCK if another process holds the lock.
    func lock(_ descriptor: Int32) throws(SystemError)
    /// futimens(2): sets only the modification time, in seconds since 1970.
    func touch(_ descriptor: Int32, at seconds: Int64) throws(SystemError)
    /// close(2). Closes the descriptor even if it throws.
    func close(_ descriptor: Int32) throws(SystemError)
}

/// The calls of ``FileSystem``, for error texts and fault injection. Raw values are the manual's names.
public enum SystemCall: String, Sendable, CaseIterable {
    case open = "openat"
    case openCached = "openat2"
    case makeDirectory = "mkdirat"
    case rename = "renameat"
    case exchange = "renameat2"
    case unlink = "unlinkat"
    case removeDirectory = "rmdir"
    case statusOfDescriptor = "fstat"
    case statusOfName = "fstatat"
    case read = "pread"
    case readCached = "preadv2"
    case write = "pwrite"
    case sync = "fsync"
    case list = "getdents64"
    case lock = "flock"
    case touch = "futimens"
    case close = "close"
}

/// The combinations of open(2) flags that the store uses.
public enum OpenPurpose: Sendable {
    /// A configured directory. Follows links: `/var/cache` may be one.
    case root
    /// A directory of the store.
    case directory
    /// A file to read. Does not block on a FIFO (O_NONBLOCK) and keeps the access time (O_NOATIME).
    case reading
    /// A new file with mode 0600; it must not exist.
    case creating
    /// An existing file, written in place.
    case overwriting
    /// A lock or counter file, created with mode 0600 if missing, read and written in place.
    case keeping
}

/// A file name, or the path of a configured directory: any bytes except zero.
public struct FileName: Hashable, Sendable, ExpressibleByStringLiteral {
    /// The bytes with a terminating zero.
    let terminated: [UInt8]

    public init(stringLiteral value: StaticString) { self.init(value.description) }

    /// `text` must not contain a zero byte, at which the kernel would cut it off.
    public init(_ text: String) { self.init(text.utf8) }

    init(_ bytes: some Sequence<UInt8>) { terminated = Array(bytes) + [0] }

    /// `fill` must write `length` bytes, none of them zero.
    init(length: Int, fill: (UnsafeMutableBufferPointer<UInt8>) -> Void) {
        terminated = Array(unsafeUninitializedCapacity: length + 1) { buffer, count in
            buffer.initialize(repeating: 0)
            fill(UnsafeMutableBufferPointer(rebasing: buffer[..<length]))
            count = length + 1
        }
    }

    var bytes: ArraySlice<UInt8> { terminated.dropLast() }

    var text: String { String(decoding: bytes, as: UTF8.self) }

    func appending(_ suffix: String) -> FileName { FileName(bytes + [UInt8(ascii: ".")] + suffix.utf8) }

    public func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        terminated.withUnsafeBytes { body($0.assumingMemoryBound(to: CChar.self).baseAddress!) }
    }
}

/// The part of struct stat that the store uses.
public struct FileStatus: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        case file, directory, link, other
    }

    public var kind: Kind
    public var linkCount: UInt64
    public var size: Int64
    public var owner: UInt32
    public var group: UInt32
    /// The lower 12 bits of the mode.
    public var permissions: UInt32
    public var device: UInt64
    public var inode: UInt64
    /// Modification time: seconds since 1970 and nanoseconds.
    public var modifiedSeconds: Int64
    public var modifiedNanoseconds: Int64

    /// Whether both describe the same file, even if its contents have changed.
    func isSameFile(as other: FileStatus) -> Bool { inode == other.inode && device == other.device }
}

extension SystemError {
    /// Names the failed call as the manual does.
    public init(_ call: SystemCall, _ code: Int32) { self.init(call: call.rawValue, code: code) }

    var isMissing: Bool { code == ENOENT }
    /// No free blocks or inodes, or a quota of the file system is exceeded.
    var isNoSpace: Bool { code == ENOSPC || code == EDQUOT }
    /// The disk or the file system is damaged.
    var isMediumError: Bool { [EIO, EBADMSG, EUCLEAN].contains(code) }
    var isReadOnly: Bool { code == EROFS }
    /// The process or the machine has run out of descriptors.
    var isOutOfDescriptors: Bool { code == EMFILE || code == ENFILE }
    /// Opening found another kind of file than expected: a link, a socket, a device without a driver, a directory
    /// instead of a file or vice versa.
    var isWrongKind: Bool { [ELOOP, ENOTDIR, EISDIR, ENXIO, ENODEV].contains(code) }
    /// The kernel or file system does not support the call or its flags, or a system-call filter rejects it.
    var isUnknownCall: Bool { [ENOSYS, EOPNOTSUPP, EINVAL, EPERM].contains(code) }
    var isDenied: Bool { code == EACCES || code == EPERM }
}
