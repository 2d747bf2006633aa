import Glibc

enum ConfigurationFileError: Error, Equatable {
    case missing
    case unreadable(String)
    case notAFile
    case tooLarge
    case notText
}

/// The text of a file of at most `limit` bytes. Does not hang on a FIFO and does not read a device.
func readConfigurationFile(_ path: String, limit: Int) throws(ConfigurationFileError) -> String {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    guard descriptor >= 0 else {
        let code = errno
        throw code == ENOENT ? .missing : .unreadable(SystemError("open", code: code).reason)
    }
    defer { close(descriptor) }
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw .unreadable(SystemError("stat").reason) }
    guard status.st_mode & S_IFMT == S_IFREG else { throw .notAFile }

    var bytes: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 64 << 10)
    while bytes.count <= limit {
        let count: Int
        do throws(SystemError) {
            count = try retryingInterrupts("read") { read(descriptor, &chunk, chunk.count) }
        } catch {
            throw .unreadable(error.reason)
        }
        if count == 0 {
            guard let text = String(validating: bytes, as: UTF8.self) else { throw .notText }
            return text
        }
        bytes += chunk.prefix(count)
    }
    throw .tooLarge
}
