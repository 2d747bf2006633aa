import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Testing

@testable import thumbcached

@Suite struct SystemTimeTests {
    @Test func `F14: time begins as the wall clock tells it, and goes on as the machine runs`() throws {
        var before = timespec()
        clock_gettime(CLOCK_BOOTTIME, &before)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let time = SystemTime(group: group)
        let (first, wall) = (time.now, time.wallClock)
        // Between the two readings this machine may have been busy with something else, but for no longer than it ran.
        var after = timespec()
        clock_gettime(CLOCK_BOOTTIME, &after)
        let ran = Int64(after.tv_sec - before.tv_sec) + 1
        #expect((first...(first + ran)).contains(wall))
        #expect(time.now >= first)
        try group.syncShutdownGracefully()
    }

    @Test(arguments: [31_536_000, -31_536_000] as [Int64])
    func `F14: a wall clock that jumps by a year moves no time limit`(jump: Int64) throws {
        let clocks = NIOLockedValueBox([CLOCK_REALTIME: Int64(1_700_000_000), CLOCK_BOOTTIME: 50])
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let time = SystemTime(group: group) { clock in
            clocks.withLockedValue { ($0[clock] ?? 0) * 1_000_000_000 }
        }
        clocks.withLockedValue { clocks in
            clocks[CLOCK_REALTIME, default: 0] += jump
            clocks[CLOCK_BOOTTIME, default: 0] += 7
        }
        #expect(time.now == 1_700_000_007)
        #expect(time.wallClock == 1_700_000_000 + jump)
        try group.syncShutdownGracefully()
    }
}
