import Glibc
import LinuxSupport

// Files that the command line names. What is wrong with them is wrong usage.

/// The bytes of a file, or of standard input for `-`: `limit` at most.
/// - Parameter what: What it is to hold, for the message, as in "an image".
func readFile(_ path: String, what: String, limit: Int) throws(Failure) -> [UInt8] {
    let name = path == "-" ? "standard input" : path
    let bytes: [UInt8]
    do throws(SystemError) {
        bytes = path == "-" ? try readAll(STDIN_FILENO, limit: limit) : try File(path, O_RDONLY).readAll(limit: limit)
    } catch {
        throw Failure(.usage, "cannot read \(name): \(error.reason)")
    }
    guard bytes.count <= limit else {
        throw Failure(.usage, "\(name) has more than \(limit) bytes; that is too much for \(what)")
    }
    guard !bytes.isEmpty else { throw Failure(.usage, "\(name) is empty; it has to hold \(what)") }
    return bytes
}

/// Writes a file as a whole or not at all: whoever reads it meanwhile finds the old one, and a full disk leaves it
/// as it was. What is there and is no plain file, such as /dev/null or a pipe, is written to, not replaced.
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
    // Beside the file, since a rename cannot cross file systems.
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
