import Glibc
import LinuxSupport

/// Makes the directories that the daemon works in, where nobody has yet.
enum Directories {
    /// Makes a directory and those above it.
    /// - Parameter mode: of the last one; those above it get 0755, since others may have something to look for there, such as
    ///   the socket. Whatever the umask; what is there already is left alone.
    static func make(_ path: String, mode: mode_t) throws(SystemError) {
        var parents: [String] = []
        var rest = Substring(path)
        while let slash = rest.lastIndex(of: "/"), slash != rest.startIndex {
            rest = rest[..<slash]
            parents.append(String(rest))
        }
        for parent in parents.reversed() { try makeOne(parent, mode: 0o755) }
        try makeOne(path, mode: mode)
    }

    private static func makeOne(_ path: String, mode: mode_t) throws(SystemError) {
        guard mkdir(path, mode) == 0 else {
            // One that exists is no trouble, even where it may not be written to; one that is missing is.
            var status = stat()
            let code = errno
            if code == EEXIST || code == EISDIR || stat(path, &status) == 0 { return }
            throw SystemError("make the directory \(path)", code: code)
        }
        guard chmod(path, mode) == 0 else { throw SystemError("set the mode of the directory \(path)") }
    }
}
