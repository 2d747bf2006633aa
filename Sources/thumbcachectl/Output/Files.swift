import Glibc

/// Files that the command line names. What is wrong with them is wrong usage.
enum InputFile {
    /// The bytes of a file, or of standard input for `-`.
    /// - Parameters:
    ///   - what: What the file is to hold, for the message, as in "an image".
    ///   - limit: Bytes that it may have.
    static func read(_ path: String, what: String, limit: Int, input: StandardStream) throws(Failure) -> [UInt8] {
        let name = path == "-" ? "standard input" : path
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = path == "-" ? try readAll(input.descriptor, limit: limit) : try readFile(path, limit: limit)
        } catch {
            throw .usage("cannot read \(name): \(reason(error.code))")
        }
        guard bytes.count <= limit else {
            throw .usage("\(name) has more than \(limit) bytes; that is too much for \(what)")
        }
        guard !bytes.isEmpty else { throw .usage("\(name) is empty; it has to hold \(what)") }
        return bytes
    }

    private static func readFile(_ path: String, limit: Int) throws(Errno) -> [UInt8] {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Errno(code: errno) }
        defer { close(descriptor) }
        return try readAll(descriptor, limit: limit)
    }
}

enum OutputFile {
    /// Writes a file as a whole or not at all: whoever reads it meanwhile finds the old one, and a full disk leaves it
    /// as it was. What is there and is no plain file, such as /dev/null or a pipe, is written to, not replaced.
    static func write(_ bytes: [UInt8], to path: String) throws(Failure) {
        do throws(Errno) {
            var status = stat()
            if stat(path, &status) == 0, status.st_mode & S_IFMT != S_IFREG {
                try writeInto(path, bytes)
            } else {
                try replace(path, bytes)
            }
        } catch {
            throw .usage("cannot write \(path): \(reason(error.code))")
        }
    }

    private static func writeInto(_ path: String, _ bytes: [UInt8]) throws(Errno) {
        let descriptor = open(path, O_WRONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Errno(code: errno) }
        defer { close(descriptor) }
        try writeAll(bytes[...], to: descriptor)
    }

    private static func replace(_ path: String, _ bytes: [UInt8]) throws(Errno) {
        // Beside the file, since a rename cannot cross file systems.
        let temporary = path + ".\(getpid()).part"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o666)
        guard descriptor >= 0 else { throw Errno(code: errno) }
        do throws(Errno) {
            do throws(Errno) {
                try writeAll(bytes[...], to: descriptor)
            } catch {
                close(descriptor)
                throw error
            }
            // Some file systems report a failed write only here.
            guard close(descriptor) == 0 else { throw Errno(code: errno) }
            guard rename(temporary, path) == 0 else { throw Errno(code: errno) }
        } catch {
            unlink(temporary)
            throw error
        }
    }
}
