import Glibc
import LinuxSupport
import ProgramSupport

/// Facts about the running kernel, from /proc.
enum KernelFacts {
    static let bootIDFile = "/proc/sys/kernel/random/boot_id"
    static let overflowUIDFile = "/proc/sys/kernel/overflowuid"

    static let defaultOverflowUID: UInt32 = 65_534
    /// The boot id, passed by a unit that hides /proc/sys (`ProcSubset=pid`) as `%b` (systemd.unit(5)).
    static let bootIDVariable = "THUMBCACHED_BOOT_ID"

    /// The boot id, 32 hexadecimal digits, from the environment or else from boot_id (random(4)).
    static func bootID(environment: [String: String], file path: String = bootIDFile) throws -> String {
        let passed = environment[bootIDVariable].flatMap { $0.isEmpty ? nil : $0 }
        let found = if let passed { passed } else { try word(path) }
        let id = found.lowercased().filter { $0 != "-" }
        guard id.utf8.count == 32, id.utf8.allSatisfy({ isWordByte($0) }) else {
            let source = passed == nil ? path : bootIDVariable
            throw DaemonError("\(source): \"\(found)\" is no boot id; expected 32 hexadecimal digits")
        }
        return id
    }

    /// The uid that represents uids without a number in this user namespace (user_namespaces(7)).
    static func overflowUID(_ path: String = overflowUIDFile) throws -> UInt32 {
        let found = try word(path)
        guard let uid = UInt32(found) else { throw DaemonError("\(path): \"\(found)\" is no uid") }
        return uid
    }

    private static func word(_ path: String) throws(SystemError) -> String {
        let bytes = try File(path, O_RDONLY).readAll(limit: 64)
        return String(decoding: bytes.prefix { isWordByte($0) }, as: UTF8.self)
    }
}
