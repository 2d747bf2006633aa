import Glibc
import NIOCore
import ThumbnailCache

/// The machine's clocks, with the event loops as timers.
struct SystemTime: Timekeeping {
    let group: any EventLoopGroup

    /// Seconds; the coarse clock costs a few nanoseconds and is off by one tick of the kernel at most.
    var now: Int64 {
        var moment = timespec()
        clock_gettime(CLOCK_REALTIME_COARSE, &moment)
        return Int64(moment.tv_sec)
    }

    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any ThumbnailCache.Timer {
        LoopTimer(task: group.next().scheduleTask(in: .milliseconds(milliseconds), work))
    }

    private struct LoopTimer: ThumbnailCache.Timer {
        let task: Scheduled<Void>

        func cancel() { task.cancel() }
    }
}
