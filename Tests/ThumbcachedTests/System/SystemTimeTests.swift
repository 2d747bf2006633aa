import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Testing

@testable import thumbcached

@Suite struct SystemTimeTests {
    @Test func `F14: time starts at the wall clock and continues with the uptime`() throws {
        var before = timespec()
        clock_gettime(CLOCK_BOOTTIME, &before)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let time = SystemTime(group: group)
        let (first, wall) = (time.now, time.wallClock)
        // Time may pass between the two readings, but not more than the uptime.
        var after = timespec()
        clock_gettime(CLOCK_BOOTTIME, &after)
        let ran = Int64(after.tv_sec - before.tv_sec) + 1
        #expect((first...(first + ran)).contains(wall))
        #expect(time.now >= first)
        try group.syncShutdownGracefully()
    }

    @Test(arguments: [31_536_000, -31_536_000] as [Int64])
    func `F14: a jump of the wall clock by a year changes no time limit`(jump: Int64) throws {
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
