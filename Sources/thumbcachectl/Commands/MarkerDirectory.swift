import Glibc
import LinuxSupport

/// The directory in which a log-out hook leaves word of a log-out, for a daemon that it may not reach.
///
/// A marker is an empty file `<uid>.<32 hexadecimal digits>`: its name is all it says. `docs/operations.md` has the
/// whole story, under "Pending log-outs".
struct MarkerDirectory {
    let path: String

    /// A marker that was left, and those of the same uid that it stands for.
    struct Marker {
        let name: String
        let older: [String]
    }

    /// Leaves a marker. It survives a power cut when this returns.
    func leave(uid: UInt32) throws(SystemError) -> Marker {
        let directory = try open()
        let older = try names(in: directory).filter { Self.uid(of: $0) == uid }
        // Nobody can guess it, or has had it before.
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
        return Marker(name: name, older: older)
    }

    /// Removes markers, those of them that are there. They do not come back with a power cut after this.
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

    /// What the directory holds.
    private func names(in directory: borrowing File) throws(SystemError) -> [String] {
        // A descriptor of its own: closedir closes it.
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

    /// Whose log-out a marker is; nil for a name that is none.
    static func uid(of name: String) -> UInt32? {
        let parts = name.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 2, let uid = UInt32(parts[0]), String(uid) == parts[0], parts[1].utf8.count == 32,
            Hex.isLowerCase(parts[1].utf8)
        else { return nil }
        return uid
    }
}
