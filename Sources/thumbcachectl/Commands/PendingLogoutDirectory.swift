import Glibc
import LinuxSupport

/// The directory in which a logout hook leaves pending-logout files, for a daemon that may not be running.
///
/// A file is empty and named `<uid>.<32 hexadecimal digits>`. See "Pending logouts" in `docs/operations.md`.
struct PendingLogoutDirectory {
    let path: String

    /// A file that was created, and older files of the same uid, which it replaces.
    struct PendingFile {
        let name: String
        let older: [String]
    }

    /// Creates a pending-logout file and makes it durable.
    func leave(uid: UInt32) throws(SystemError) -> PendingFile {
        let directory = try open()
        let older = try names(in: directory).filter { Self.uid(of: $0) == uid }
        let name = "\(uid)." + Hex.text((0..<16).map { _ in UInt8.random(in: .min ... .max) })
        let attempt = "make \(path)/\(name)"
        let file = try retryingInterrupts(attempt) {
            openat(directory.descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o640)
        }
        defer { close(file) }
        guard fsync(file) == 0, fsync(directory.descriptor) == 0 else {
            let failure = SystemError("\(attempt) durable")
            unlinkat(directory.descriptor, name, 0)
            throw failure
        }
        return PendingFile(name: name, older: older)
    }

    /// Removes files durably. Missing files are ignored.
    func remove(_ names: [String]) throws(SystemError) {
        if names.isEmpty { return }
        let directory = try open()
        var failure: SystemError?
        for name in names where unlinkat(directory.descriptor, name, 0) != 0 && errno != ENOENT {
            failure = failure ?? SystemError("remove \(path)/\(name)")
        }
        if let failure { throw failure }
        guard fsync(directory.descriptor) == 0 else { throw SystemError("sync \(path)") }
    }

    private func open() throws(SystemError) -> File {
        do throws(SystemError) {
            return try File(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        } catch {
            throw SystemError("open the directory \(path)", code: error.code)
        }
    }

    private func names(in directory: borrowing File) throws(SystemError) -> [String] {
        // closedir closes the descriptor, so it gets a separate one.
        let own = openat(directory.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard own >= 0, let stream = fdopendir(own) else { throw SystemError("list \(path)") }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            names.append(
                withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) })
        }
        return names
    }

    static func uid(of name: String) -> UInt32? {
        let parts = name.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 2, let uid = UInt32(parts[0]), String(uid) == parts[0], parts[1].utf8.count == 32,
            Hex.isLowerCase(parts[1].utf8)
        else { return nil }
        return uid
    }
}
