import LinuxSupport
import ThumbnailCache

/// A file that holds nothing but a secret.
enum SecretFile {
    /// Bytes. More is something else, named by mistake.
    static let longest = 4 << 10

    /// The secret in a file, without the line break that editors put at its end. Does not hang on a FIFO and does not read a device.
    /// - Throws: what is wrong with the file; never what is in it.
    static func read(_ path: String) throws(SettingError) -> Secret {
        var bytes: [UInt8]
        do throws(PlainFileError) {
            bytes = try readPlainFile(path, limit: longest)
        } catch .tooLarge {
            throw SettingError("\(quoted(path)) has more than \(longest) bytes, too many for a secret")
        } catch {
            throw SettingError("\(quoted(path)) \(error)")
        }
        defer { bytes.wipe() }
        let secret = bytes.withoutLineBreak
        guard !secret.isEmpty else {
            throw SettingError("\(quoted(path)) is empty; it has to hold the client's secret")
        }
        return Secret(secret)
    }
}
