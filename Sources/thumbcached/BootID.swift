import Glibc

/// Which boot of the machine this is: random(4), boot_id.
enum BootID {
    static let file = "/proc/sys/kernel/random/boot_id"

    /// The kernel's id of this boot, without the line break. In a container it is that of the machine.
    /// - Throws: when the file cannot be read, or holds no id.
    static func read(_ path: String = file) throws(SystemError) -> String {
        let descriptor = try retryingInterrupts("open \(path)") { open(path, O_RDONLY | O_CLOEXEC) }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = try retryingInterrupts("read \(path)") { Glibc.read(descriptor, &bytes, bytes.count) }
        let id = bytes.prefix(count).prefix { isWordByte($0) }
        guard id.count == 36 else { throw SystemError("find the id of this boot in \(path)", code: EINVAL) }
        return String(decoding: id, as: UTF8.self)
    }
}
