import Glibc

/// An open file, closed at the end of its scope.
public struct File: ~Copyable {
    public let descriptor: CInt

    /// - Parameter flags: those of open(2); O_CLOEXEC is added.
    public init(_ path: String, _ flags: CInt, mode: mode_t = 0, in directory: CInt = AT_FDCWD) throws(SystemError) {
        descriptor = try retryingInterrupts("open \(path)") { openat(directory, path, flags | O_CLOEXEC, mode) }
    }

    deinit { Glibc.close(descriptor) }

    public func isPlain() throws(SystemError) -> Bool {
        var status = stat()
        _ = try retryingInterrupts("stat") { fstat(descriptor, &status) }
        return status.st_mode & S_IFMT == S_IFREG
    }

    public func readAll(limit: Int) throws(SystemError) -> [UInt8] {
        try LinuxSupport.readAll(descriptor, limit: limit)
    }

    public func write(_ bytes: [UInt8]) throws(SystemError) { try writeAll(bytes, to: descriptor) }

    /// Closes the file and reports write errors, which some file systems report only here.
    public consuming func close() throws(SystemError) {
        let descriptor = self.descriptor
        discard self
        guard Glibc.close(descriptor) == 0 else { throw SystemError("close") }
    }
}

/// Reads to the end, at most `limit` + 1 bytes, so that the caller can detect longer input. Input of less than 64 KiB
/// is copied once only, so that the caller can wipe a secret.
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

/// Writes all bytes, with several calls if necessary.
public func writeAll(_ bytes: [UInt8], to descriptor: CInt) throws(SystemError) {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = try retryingInterrupts("write") {
            rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        }
        // Otherwise a write that returns 0 would be retried forever.
        if count == 0 { throw SystemError("write", code: EIO) }
        rest = rest.dropFirst(count)
    }
}

/// Why a file cannot be read completely. The description follows the file's name.
public enum PlainFileError: Error, Equatable, CustomStringConvertible {
    case system(SystemError)
    case notPlain
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

/// Reads a plain file. Does not block on a FIFO and does not read devices.
public func readPlainFile(_ path: String, limit: Int) throws(PlainFileError) -> [UInt8] {
    // Never shared, so that wiping reaches the only copy.
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

public func readTextFile(_ path: String, limit: Int) throws(PlainFileError) -> String {
    guard let text = String(validating: try readPlainFile(path, limit: limit), as: UTF8.self) else { throw .notText }
    return text
}

/// Creates a directory and its missing parents.
/// - Parameter mode: of the last directory; parents get 0755, because other users may need files in them, such as the
///   socket. The umask does not apply. Existing directories keep their mode.
public func makeDirectories(_ path: String, mode: mode_t) throws(SystemError) {
    func make(_ path: String, _ mode: mode_t) throws(SystemError) {
        guard mkdir(path, mode) == 0 else {
            // Errors other than EEXIST are possible for an existing directory, such as EROFS.
            var status = stat()
            let code = errno
            if code == EEXIST || code == EISDIR || stat(path, &status) == 0 { return }
            throw SystemError("create the directory \(path)", code: code)
        }
        guard chmod(path, mode) == 0 else { throw SystemError("set the mode of the directory \(path)") }
    }
    for slash in path.indices.dropFirst() where path[slash] == "/" { try make(String(path[..<slash]), 0o755) }
    try make(path, mode)
}

/// Identifies a file and its state. Includes the change time, because inode numbers are reused.
public struct FileIdentity: Sendable, Equatable {
    private let device: UInt
    private let inode: UInt
    private let changed: [Int]

    public init(_ status: stat) {
        device = UInt(status.st_dev)
        inode = UInt(status.st_ino)
        changed = [status.st_ctim.tv_sec, status.st_ctim.tv_nsec]
    }

    /// Returns the identity of the file at a path; nil if it is missing.
    /// - Parameter followsLinks: false identifies a symbolic link itself.
    public static func of(_ path: String, followsLinks: Bool = false) throws(SystemError) -> FileIdentity? {
        var status = stat()
        if fstatat(AT_FDCWD, path, &status, followsLinks ? 0 : AT_SYMLINK_NOFOLLOW) == 0 { return FileIdentity(status) }
        if errno == ENOENT { return nil }
        throw SystemError("stat \(path)")
    }
}

extension Collection<UInt8> where Self: BidirectionalCollection {
    /// The bytes without the line break that editors and `echo` put at the end of a file.
    public var withoutLineBreak: SubSequence {
        let line = last == UInt8(ascii: "\n") ? dropLast() : self[...]
        return line.last == UInt8(ascii: "\r") ? line.dropLast() : line
    }
}
