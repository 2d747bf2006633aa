import Glibc
import NIOCore
import ThumbnailCache

/// The machine's clocks, with the event loops as timers.
struct SystemTime: Timekeeping {
    private let group: any EventLoopGroup
    /// Nanoseconds that the wall clock was ahead of the machine's running time at the start.
    private let lead: Int64

    init(group: any EventLoopGroup) {
        self.group = group
        lead = Self.nanoseconds(CLOCK_REALTIME) - Self.nanoseconds(CLOCK_BOOTTIME)
    }

    var now: Int64 { (Self.nanoseconds(CLOCK_BOOTTIME) + lead) / 1_000_000_000 }

    var wallClock: Int64 { Self.nanoseconds(CLOCK_REALTIME) / 1_000_000_000 }

    /// Read without a system call; costs some 30 ns.
    private static func nanoseconds(_ clock: clockid_t) -> Int64 {
        var moment = timespec()
        clock_gettime(clock, &moment)
        return Int64(moment.tv_sec) * 1_000_000_000 + Int64(moment.tv_nsec)
    }

    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any ThumbnailCache.Timer {
        LoopTimer(task: group.next().scheduleTask(in: .milliseconds(milliseconds), work))
    }

    private struct LoopTimer: ThumbnailCache.Timer {
        let task: Scheduled<Void>

        func cancel() { task.cancel() }
    }
}
