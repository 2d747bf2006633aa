import Glibc
import LinuxSupport

/// Every system call that the store makes, and nothing else: the one seam between the store and the machine.
///
/// Each function is one call and reports what that call reported: an interrupted call throws EINTR, a short write
/// returns a short count. Completing them is the business of ``Disk``, above the seam, so that a test that fails the
/// Nth call tests that too. Everything is opened with O_CLOEXEC; only ``OpenPurpose/root`` follows a link.
public protocol FileSystem: Sendable {
    /// openat(2).
    func open(_ name: FileName, in directory: Int32, for purpose: OpenPurpose) throws(SystemError) -> Int32
    /// openat2(2) for reading, with RESOLVE_CACHED: EAGAIN rather than wait for the disk. The name may be a path; no
    /// link on it is followed, and it stays beneath the directory.
    func openCached(_ path: FileName, in directory: Int32) throws(SystemError) -> Int32
    /// fstatfs(2): whether what lies there is opened and looked at by asking another machine or process, which may not
    /// answer. Also true when it cannot be told.
    func isRemote(_ descriptor: Int32) -> Bool
    /// fstatvfs(3): bytes that the file system of something open hands out at once; 4096 when it cannot be told.
    func blockSize(_ descriptor: Int32) -> Int
    /// mkdirat(2), with mode 0700.
    func makeDirectory(_ name: FileName, in directory: Int32) throws(SystemError)
    /// renameat(2).
    func rename(_ name: FileName, in directory: Int32, to newName: FileName, in newDirectory: Int32) throws(SystemError)
    /// renameat2(2) with RENAME_EXCHANGE: swaps two names in one step.
    func exchange(
        _ name: FileName, in directory: Int32, with other: FileName, in otherDirectory: Int32
    ) throws(SystemError)
    /// unlinkat(2).
    func unlink(_ name: FileName, in directory: Int32) throws(SystemError)
    /// unlinkat(2) with AT_REMOVEDIR.
    func removeDirectory(_ name: FileName, in directory: Int32) throws(SystemError)
    /// fstat(2).
    func status(of descriptor: Int32) throws(SystemError) -> FileStatus
    /// fstatat(2) with AT_SYMLINK_NOFOLLOW.
    func status(of name: FileName, in directory: Int32) throws(SystemError) -> FileStatus
    /// pread(2): bytes read, 0 at the end of the file.
    func read(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int
    /// preadv2(2) with RWF_NOWAIT: bytes read as far as the page cache holds them, EAGAIN when it holds none,
    /// EOPNOTSUPP on file systems that cannot tell.
    func readCached(
        _ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer, at offset: Int64
    ) throws(SystemError) -> Int
    /// pwrite(2): bytes written.
    func write(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(SystemError) -> Int
    /// fsync(2), of a file or a directory.
    func sync(_ descriptor: Int32) throws(SystemError)
    /// getdents64(2): bytes of `buffer` filled with entries, 0 at the end of the directory.
    func list(_ descriptor: Int32, into buffer: UnsafeMutableRawBufferPointer) throws(SystemError) -> Int
    /// flock(2) with LOCK_EX and LOCK_NB: EWOULDBLOCK when somebody else holds it.
    func lock(_ descriptor: Int32) throws(SystemError)
    /// futimens(2): sets the modification time alone; seconds since 1970.
    func touch(_ descriptor: Int32, at seconds: Int64) throws(SystemError)
    /// close(2). The descriptor is gone also when this throws.
    func close(_ descriptor: Int32) throws(SystemError)
}

/// The calls of ``FileSystem``, for error texts and for tests that fail one of them. Raw values are the names in
/// section 2 of the manual.
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

/// What a file is opened for: the only combinations of flags that the store uses.
public enum OpenPurpose: Sendable {
    /// A directory that the configuration names. Links are followed: `/var/cache` may well be one.
    case root
    /// A directory of the store's own.
    case directory
    /// A file to read. Never blocks, not even on a FIFO (O_NONBLOCK); leaves the access time alone (O_NOATIME).
    case reading
    /// A file that must not exist yet, mode 0600.
    case creating
    /// A file that exists, to be written in place.
    case overwriting
    /// A file to lock or to count in: made if missing, mode 0600, read and written in place.
    case keeping
}

/// A name in a directory, or for a configured directory a path: any bytes but zero, exactly as the kernel has them.
public struct FileName: Hashable, Sendable, ExpressibleByStringLiteral {
    /// The bytes with the zero that ends them.
    let terminated: [UInt8]

    public init(stringLiteral value: StaticString) { self.init(value.description) }

    /// `text` must not contain a zero byte: what follows one is cut off by the kernel.
    public init(_ text: String) { self.init(text.utf8) }

    init(_ bytes: some Sequence<UInt8>) { terminated = Array(bytes) + [0] }

    /// `fill` must write exactly `length` bytes, none of them zero.
    init(length: Int, fill: (UnsafeMutableBufferPointer<UInt8>) -> Void) {
        terminated = Array(unsafeUninitializedCapacity: length + 1) { buffer, count in
            buffer.initialize(repeating: 0)
            fill(UnsafeMutableBufferPointer(rebasing: buffer[..<length]))
            count = length + 1
        }
    }

    /// The bytes of the name alone.
    var bytes: ArraySlice<UInt8> { terminated.dropLast() }

    /// For messages about the store's own names.
    var text: String { String(decoding: bytes, as: UTF8.self) }

    /// The same name with `.` and `invalidation` after it.
    func with(invalidation: String) -> FileName { FileName(bytes + [UInt8(ascii: ".")] + invalidation.utf8) }

    public func withCString<Result>(_ body: (UnsafePointer<CChar>) -> Result) -> Result {
        terminated.withUnsafeBytes { body($0.assumingMemoryBound(to: CChar.self).baseAddress!) }
    }
}

/// What fstat tells of a file, as far as the store asks.
public struct FileStatus: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        case file, directory, link, other
    }

    public var kind: Kind
    public var linkCount: UInt64
    /// Bytes.
    public var size: Int64
    public var owner: UInt32
    public var group: UInt32
    /// The lower twelve bits of the mode.
    public var permissions: UInt32
    public var device: UInt64
    public var inode: UInt64
    /// Modification time: seconds since 1970, and the nanoseconds beyond them.
    public var modifiedSeconds: Int64
    public var modifiedNanoseconds: Int64

    /// Whether two statuses are of the same file, whatever happened to its contents.
    func isSameFile(as other: FileStatus) -> Bool { inode == other.inode && device == other.device }
}

extension SystemError {
    /// Says which call failed, by its name in the manual.
    public init(_ call: SystemCall, _ code: Int32) { self.init(call: call.rawValue, code: code) }

    /// Nothing of that name is there.
    var isMissing: Bool { code == ENOENT }
    /// No blocks, no inodes, or over a quota of the file system.
    var isNoSpace: Bool { code == ENOSPC || code == EDQUOT }
    /// The disk, or what the file system keeps on it, is damaged there.
    var isOfMedium: Bool { [EIO, EBADMSG, EUCLEAN].contains(code) }
    /// Nothing can be changed on that file system.
    var isReadOnly: Bool { code == EROFS }
    /// The process or the machine has run out of descriptors.
    var isOutOfDescriptors: Bool { code == EMFILE || code == ENFILE }
    /// Opening found something of another kind than was asked for: a link, a socket, a device without a driver, a
    /// directory where a file should be or the other way round.
    var isOfWrongKind: Bool { [ELOOP, ENOTDIR, EISDIR, ENXIO, ENODEV].contains(code) }
    /// Kernel or file system do not know the call or its flags, or a system-call filter does not let it through.
    var isUnknownCall: Bool { [ENOSYS, EOPNOTSUPP, EINVAL, EPERM].contains(code) }
    /// The file is another user's, or its mode keeps us out.
    var isDenied: Bool { code == EACCES || code == EPERM }
}
