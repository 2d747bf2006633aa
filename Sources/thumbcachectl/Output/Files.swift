import Glibc
import LinuxSupport

// Errors of files that the command line names have the exit status of invalid usage.

/// Reads a file, or standard input for `-`, of at most `limit` bytes.
/// - Parameter what: the expected content for error messages, such as "an image".
func readFile(_ path: String, what: String, limit: Int) throws(Failure) -> [UInt8] {
    let name = path == "-" ? "standard input" : path
    let bytes: [UInt8]
    do throws(SystemError) {
        bytes = path == "-" ? try readAll(STDIN_FILENO, limit: limit) : try File(path, O_RDONLY).readAll(limit: limit)
    } catch {
        throw Failure(.usage, "cannot read \(name): \(error.reason)")
    }
    guard bytes.count <= limit else {
        throw Failure(.usage, "\(name) is too large for \(what); at most \(limit) bytes are accepted")
    }
    guard !bytes.isEmpty else { throw Failure(.usage, "\(name) is empty; expected \(what)") }
    return bytes
}

/// Writes a file atomically: a reader never sees a part of it. A device or pipe is written to, not replaced.
func writeFile(_ bytes: [UInt8], to path: String) throws(Failure) {
    do throws(SystemError) {
        var status = stat()
        if stat(path, &status) == 0, status.st_mode & S_IFMT != S_IFREG {
            try File(path, O_WRONLY).write(bytes)
        } else {
            try replace(path, bytes)
        }
    } catch {
        throw Failure(.usage, "cannot write \(path): \(error.reason)")
    }
}

private func replace(_ path: String, _ bytes: [UInt8]) throws(SystemError) {
    // The temporary file is in the same directory, since rename(2) cannot cross file systems.
    let temporary = path + ".\(getpid()).part"
    let file = try File(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o666)
    do throws(SystemError) {
        try file.write(bytes)
        try file.close()
        guard rename(temporary, path) == 0 else { throw SystemError("rename") }
    } catch {
        unlink(temporary)
        throw error
    }
}
