import CacheCore
import Glibc
import LinuxSupport
import NIOCore
import ProgramSupport

/// What the kernel says of itself in /proc.
enum KernelFacts {
    static let bootIDFile = "/proc/sys/kernel/random/boot_id"
    static let overflowUIDFile = "/proc/sys/kernel/overflowuid"

    /// What the kernel has for the overflow uid unless somebody sets another.
    static let defaultOverflowUID: UInt32 = 65_534
    /// In which a unit that hides /proc/sys (`ProcSubset=pid`) can pass the id of the boot: `%b` of systemd.unit(5).
    static let bootIDVariable = "THUMBCACHED_BOOT_ID"

    /// The id of this boot of the machine, also in a container: 32 hexadecimal digits, as the environment has them,
    /// else those of random(4), boot_id.
    /// - Throws: when there is none in the environment and the file cannot be read, or what is found is no id.
    static func bootID(environment: [String: String], file path: String = bootIDFile) throws(SystemError) -> String {
        let passed = environment[bootIDVariable].flatMap { $0.isEmpty ? nil : $0 }
        let found = if let passed { passed } else { try word(path) }
        let id = found.lowercased().filter { $0 != "-" }
        guard id.utf8.count == 32, id.utf8.allSatisfy({ isWordByte($0) }) else {
            let source = passed == nil ? path : bootIDVariable
            throw SystemError("find the id of this boot in \(source)", code: EINVAL)
        }
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
        let bytes = try File(path, O_RDONLY).readAll(limit: 64)
        return String(decoding: bytes.prefix { isWordByte($0) }, as: UTF8.self)
    }
}

/// The machine's clocks, with the event loops as timers.
struct SystemTime: Timekeeping {
    private let group: any EventLoopGroup
    /// Nanoseconds that the wall clock was ahead of the machine's running time at the start.
    private let lead: Int64
    private let read: @Sendable (clockid_t) -> Int64

    /// - Parameter read: a clock, in nanoseconds.
    init(group: any EventLoopGroup, read: @escaping @Sendable (clockid_t) -> Int64 = nanoseconds(of:)) {
        self.group = group
        self.read = read
        lead = read(CLOCK_REALTIME) - read(CLOCK_BOOTTIME)
    }

    var now: Int64 { (read(CLOCK_BOOTTIME) + lead) / 1_000_000_000 }

    var wallClock: Int64 { read(CLOCK_REALTIME) / 1_000_000_000 }

    var uptime: Int64 { read(CLOCK_BOOTTIME) / 1_000_000 }

    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any CacheCore.Timer {
        LoopTimer(task: group.next().scheduleTask(in: .milliseconds(milliseconds), work))
    }

    private struct LoopTimer: CacheCore.Timer {
        let task: Scheduled<Void>

        func cancel() { task.cancel() }
    }
}
