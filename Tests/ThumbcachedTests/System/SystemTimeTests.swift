import Glibc
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
}
