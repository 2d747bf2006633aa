import Glibc

/// An open file, closed with its scope.
public struct File: ~Copyable {
    public let descriptor: CInt

    /// - Parameter flags: of open(2); a program that is started does not inherit it.
    public init(_ path: String, _ flags: CInt, mode: mode_t = 0, in directory: CInt = AT_FDCWD) throws(SystemError) {
        descriptor = try retryingInterrupts("open \(path)") { openat(directory, path, flags | O_CLOEXEC, mode) }
    }

    deinit { Glibc.close(descriptor) }

    public func isPlain() throws(SystemError) -> Bool {
        var status = stat()
        _ = try retryingInterrupts("stat") { fstat(descriptor, &status) }
        return status.st_mode & S_IFMT == S_IFREG
    }

    /// As ``readAll(_:limit:)``.
    public func readAll(limit: Int) throws(SystemError) -> [UInt8] {
        try LinuxSupport.readAll(descriptor, limit: limit)
    }

    public func write(_ bytes: [UInt8]) throws(SystemError) { try writeAll(bytes, to: descriptor) }

    /// Closes now, for whoever wants to know that what was written has arrived: some file systems report it only here.
    public consuming func close() throws(SystemError) {
        let descriptor = self.descriptor
        discard self
        guard Glibc.close(descriptor) == 0 else { throw SystemError("close") }
    }
}

/// Reads to the end, or one byte past `limit`: the caller sees by the count that there was more. Of what has less than
/// 64 KiB there is no other copy, so that a secret can be wiped.
public func readAll(_ descriptor: CInt, limit: Int) throws(SystemError) -> [UInt8] {
    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: min(64 << 10, limit + 1))
    bytes.reserveCapacity(chunk.count)
    defer { chunk.wipe() }
    while bytes.count <= limit {
        let most = min(chunk.count, limit + 1 - bytes.count)
        let count: Int
        do throws(SystemError) {
            count = try retryingInterrupts("read") { read(descriptor, &chunk, most) }
        } catch {
            bytes.wipe()
            throw error
        }
        if count == 0 { break }
        bytes += chunk.prefix(count)
    }
    return bytes
}

/// Writes all of it, whatever the system takes at once.
public func writeAll(_ bytes: [UInt8], to descriptor: CInt) throws(SystemError) {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = try retryingInterrupts("write") {
            rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        }
        // A write of some bytes that writes none and names no error would otherwise be tried for ever.
        if count == 0 { throw SystemError("write", code: EIO) }
        rest = rest.dropFirst(count)
    }
}

/// Why a file is not had as a whole: the end of a sentence that begins with its name.
public enum PlainFileError: Error, Equatable, CustomStringConvertible {
    case system(SystemError)
    case notPlain
    /// More bytes than the limit.
    case tooLarge(limit: Int)
    case notText

    public var isMissing: Bool {
        if case .system(let error) = self { error.code == ENOENT } else { false }
    }

    public var description: String {
        switch self {
        case .system(let error): "cannot be read: \(error.reason)"
        case .notPlain: "is not a plain file"
        case .tooLarge(let limit): "has more than \(limit) bytes"
        case .notText: "is not UTF-8 text"
        }
    }
}

/// All bytes of a plain file. Does not hang on a FIFO and does not read a device.
public func readPlainFile(_ path: String, limit: Int) throws(PlainFileError) -> [UInt8] {
    // Never shared: what is too long is wiped, and not a copy of it.
    var bytes: [UInt8] = []
    var isPlain = false
    do throws(SystemError) {
        let file = try File(path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
        isPlain = try file.isPlain()
        if isPlain { bytes = try file.readAll(limit: limit) }
    } catch {
        throw .system(error)
    }
    guard isPlain else { throw .notPlain }
    if bytes.count > limit {
        bytes.wipe()
        throw .tooLarge(limit: limit)
    }
    return bytes
}

/// The text of a plain file.
public func readTextFile(_ path: String, limit: Int) throws(PlainFileError) -> String {
    guard let text = String(validating: try readPlainFile(path, limit: limit), as: UTF8.self) else { throw .notText }
    return text
}

/// Makes a directory and those above it, where they are missing.
/// - Parameter mode: of the last one; those above it get 0755, since others may have something to look for there, such
///   as the socket. Whatever the umask; what is there already is left alone.
public func makeDirectories(_ path: String, mode: mode_t) throws(SystemError) {
    func make(_ path: String, _ mode: mode_t) throws(SystemError) {
        guard mkdir(path, mode) == 0 else {
            // One that exists is no trouble, even where it may not be written to; one that is missing is.
            var status = stat()
            let code = errno
            if code == EEXIST || code == EISDIR || stat(path, &status) == 0 { return }
            throw SystemError("make the directory \(path)", code: code)
        }
        guard chmod(path, mode) == 0 else { throw SystemError("set the mode of the directory \(path)") }
    }
    for slash in path.indices.dropFirst() where path[slash] == "/" { try make(String(path[..<slash]), 0o755) }
    try make(path, mode)
}

/// Which file a path stood for, and in which state. The number of a file that is gone may be given to the next one at
/// once; the time of its last change tells the two apart.
public struct FileIdentity: Sendable, Equatable {
    private let device: UInt
    private let inode: UInt
    private let changed: [Int]

    public init(_ status: stat) {
        device = UInt(status.st_dev)
        inode = UInt(status.st_ino)
        changed = [status.st_ctim.tv_sec, status.st_ctim.tv_nsec]
    }

    /// nil where nothing is.
    /// - Parameter followsLinks: else it is of a symbolic link itself.
    public static func of(_ path: String, followsLinks: Bool = false) throws(SystemError) -> FileIdentity? {
        var status = stat()
        if fstatat(AT_FDCWD, path, &status, followsLinks ? 0 : AT_SYMLINK_NOFOLLOW) == 0 { return FileIdentity(status) }
        if errno == ENOENT { return nil }
        throw SystemError("look at \(path)")
    }
}

extension Collection<UInt8> where Self: BidirectionalCollection {
    /// Without the line break that editors and `echo` put at the end of a file.
    public var withoutLineBreak: SubSequence {
        let line = last == UInt8(ascii: "\n") ? dropLast() : self[...]
        return line.last == UInt8(ascii: "\r") ? line.dropLast() : line
    }
}
