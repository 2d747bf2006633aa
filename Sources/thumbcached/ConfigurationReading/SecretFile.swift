import Glibc
import LinuxSupport
import ThumbnailCache

/// A file that holds nothing but a secret.
enum SecretFile {
    /// Bytes. More is something else, named by mistake.
    static let longest = 4 << 10

    /// The secret in a file, without the line break that editors put at its end. Does not hang on a FIFO and does not read a device.
    /// - Throws: what is wrong with the file; never what is in it.
    static func read(_ path: String) throws(SettingError) -> Secret {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else {
            throw SettingError("\(quoted(path)) cannot be read: \(String(cString: strerror(errno)))")
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw SettingError("\(quoted(path)) is not a plain file")
        }
        // Room for a byte more than there may be, so that a longer file is noticed.
        var bytes = [UInt8](repeating: 0, count: longest + 1)
        defer { bytes.wipe() }
        var count = 0
        while count < bytes.count {
            let got = bytes.withUnsafeMutableBytes { memory in
                Glibc.read(descriptor, memory.baseAddress! + count, memory.count - count)
            }
            if got < 0, errno == EINTR { continue }
            guard got >= 0 else {
                throw SettingError("\(quoted(path)) cannot be read: \(String(cString: strerror(errno)))")
            }
            if got == 0 { break }
            count += got
        }
        guard count <= longest else {
            throw SettingError("\(quoted(path)) has more than \(longest) bytes, too many for a secret")
        }
        if count > 0, bytes[count - 1] == UInt8(ascii: "\n") { count -= 1 }
        if count > 0, bytes[count - 1] == UInt8(ascii: "\r") { count -= 1 }
        guard count > 0 else { throw SettingError("\(quoted(path)) is empty; it has to hold the client's secret") }
        return Secret(bytes[..<count])
    }
}
