import Glibc
import LinuxSupport
import NIOCore
import ThumbnailCache

/// The machine's clocks, with the event loops as timers.
struct SystemTime: Timekeeping {
    private let group: any EventLoopGroup
    /// Nanoseconds that the wall clock was ahead of the machine's running time at the start.
    private let lead: Int64

    init(group: any EventLoopGroup) {
        self.group = group
        lead = nanoseconds(of: CLOCK_REALTIME) - nanoseconds(of: CLOCK_BOOTTIME)
    }

    var now: Int64 { (nanoseconds(of: CLOCK_BOOTTIME) + lead) / 1_000_000_000 }

    var wallClock: Int64 { nanoseconds(of: CLOCK_REALTIME) / 1_000_000_000 }

    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any ThumbnailCache.Timer {
        LoopTimer(task: group.next().scheduleTask(in: .milliseconds(milliseconds), work))
    }

    private struct LoopTimer: ThumbnailCache.Timer {
        let task: Scheduled<Void>

        func cancel() { task.cancel() }
    }
}
