import CacheCore
import Glibc
import LinuxSupport
import NIOCore

/// The machine's clocks; timers run on the event loops.
struct SystemTime: Timekeeping {
    private let group: any EventLoopGroup
    /// Wall clock minus time since boot, at the start, in nanoseconds.
    private let lead: Int64
    private let read: @Sendable (clockid_t) -> Int64

    /// - Parameter read: returns a clock's time in nanoseconds.
    init(group: any EventLoopGroup, read: @escaping @Sendable (clockid_t) -> Int64 = nanoseconds(of:)) {
        self.group = group
        self.read = read
        lead = read(CLOCK_REALTIME) - read(CLOCK_BOOTTIME)
    }

    var now: Int64 { (read(CLOCK_BOOTTIME) + lead) / 1_000_000_000 }

    var wallClock: Int64 { read(CLOCK_REALTIME) / 1_000_000_000 }

    var uptime: Int64 { read(CLOCK_BOOTTIME) / 1_000_000 }

    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any CacheCore.Timer {
        ScheduledTimer(task: group.next().scheduleTask(in: .milliseconds(milliseconds), work))
    }

    private struct ScheduledTimer: CacheCore.Timer {
        let task: Scheduled<Void>

        func cancel() { task.cancel() }
    }
}
