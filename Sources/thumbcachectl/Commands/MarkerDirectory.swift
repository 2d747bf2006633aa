import Glibc

/// The directory in which a log-out hook leaves word of a log-out, for a daemon that it may not reach.
///
/// A marker is an empty file `<uid>.<32 hexadecimal digits>`: its name is all it says. `docs/operations.md` has the whole
/// story, under "Pending log-outs".
struct MarkerDirectory {
    let path: String

    /// A marker that was left, and those of the same uid that it stands for.
    struct Marker {
        let name: String
        let older: [String]
    }

    /// Leaves a marker. It survives a power cut when this returns.
    /// - Parameter random: 64 bits that nobody can guess or has had before.
    func leave(uid: UInt32, random: () -> UInt64) throws(MarkerFailure) -> Marker {
        let directory = try open()
        defer { close(directory) }
        let older = try names(in: directory).filter { Self.uid(of: $0) == uid }
        let name = "\(uid).\(Self.hexadecimal(random()))\(Self.hexadecimal(random()))"
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
        let file = openat(directory, name, flags, 0o640)
        guard file >= 0 else { throw MarkerFailure("make \(path)/\(name)", errno) }
        defer { close(file) }
        guard fsync(file) == 0, fsync(directory) == 0 else {
            let failure = MarkerFailure("make \(path)/\(name) durable", errno)
            unlinkat(directory, name, 0)
            throw failure
        }
        return Marker(name: name, older: older)
    }

    /// Removes markers, those of them that are there. They do not come back with a power cut after this.
    /// - Returns: how many there were.
    @discardableResult
    func remove(_ names: [String]) throws(MarkerFailure) -> Int {
        if names.isEmpty { return 0 }
        let directory = try open()
        defer { close(directory) }
        var count = 0
        var failure: MarkerFailure?
        for name in names {
            if unlinkat(directory, name, 0) == 0 {
                count += 1
            } else if errno != ENOENT {
                failure = failure ?? MarkerFailure("remove \(path)/\(name)", errno)
            }
        }
        if let failure { throw failure }
        guard fsync(directory) == 0 else { throw MarkerFailure("sync \(path)", errno) }
        return count
    }

    var exists: Bool { access(path, F_OK) == 0 }

    private func open() throws(MarkerFailure) -> Int32 {
        let directory = Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard directory >= 0 else { throw MarkerFailure("open the directory \(path)", errno) }
        return directory
    }

    /// What the directory holds.
    private func names(in directory: Int32) throws(MarkerFailure) -> [String] {
        // A descriptor of its own: closedir closes it.
        let own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard own >= 0, let stream = fdopendir(own) else { throw MarkerFailure("list \(path)", errno) }
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
            parts[1].utf8.allSatisfy({ "0123456789abcdef".utf8.contains($0) })
        else { return nil }
        return uid
    }

    private static func hexadecimal(_ number: UInt64) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}

/// What could not be done with markers, and the system's reason.
struct MarkerFailure: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ action: String, _ code: Int32) {
        description = "cannot \(action): \(reason(code))"
    }
}
