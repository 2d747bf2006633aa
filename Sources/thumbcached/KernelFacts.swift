import Glibc

/// What the kernel says of itself in /proc.
enum KernelFacts {
    static let bootIDFile = "/proc/sys/kernel/random/boot_id"
    static let overflowUIDFile = "/proc/sys/kernel/overflowuid"

    /// The id of this boot of the machine, also in a container: random(4), boot_id.
    /// - Throws: when the file cannot be read, or holds no id.
    static func bootID(_ path: String = bootIDFile) throws(SystemError) -> String {
        let id = try word(path)
        guard id.utf8.count == 36 else { throw SystemError("find the id of this boot in \(path)", code: EINVAL) }
        return id
    }

    /// The uid that the kernel gives for one that has no number in this user namespace: user_namespaces(7).
    /// - Throws: when the file cannot be read, or holds no uid.
    static func overflowUID(_ path: String = overflowUIDFile) throws(SystemError) -> UInt32 {
        guard let uid = UInt32(try word(path)) else { throw SystemError("find a uid in \(path)", code: EINVAL) }
        return uid
    }

    /// The word that a file of a line begins with.
    private static func word(_ path: String) throws(SystemError) -> String {
        let descriptor = try retryingInterrupts("open \(path)") { open(path, O_RDONLY | O_CLOEXEC) }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = try retryingInterrupts("read \(path)") { Glibc.read(descriptor, &bytes, bytes.count) }
        return String(decoding: bytes.prefix(count).prefix { isWordByte($0) }, as: UTF8.self)
    }
}
