import CacheFakes
import Glibc
import HelperClient
import HelperProtocol
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Testing

@testable import thumbcached

@Suite(.timeLimit(.minutes(5))) struct WatchdogTests {
    /// A check that the test completes.
    private final class TestPart: Sendable {
        private let pending = NIOLockedValueBox<[@Sendable () -> Void]>([])

        var runningChecks: Int { pending.withLockedValue { $0.count } }

        func check(_ name: String, isVital: Bool = true) -> Watchdog.HealthCheck {
            Watchdog.HealthCheck(name: name, isVital: isVital) { answer in
                self.pending.withLockedValue { $0.append(answer) }
            }
        }

        func complete() {
            let answers = pending.withLockedValue { pending in
                defer { pending = [] }
                return pending
            }
            for answer in answers { answer() }
        }
    }

    private let time = ManualTime()
    private let feedCount = NIOLockedValueBox(0)
    private var feedings: Int { feedCount.withLockedValue { $0 } }

    private func watchdog(_ checks: Watchdog.HealthCheck...) -> Watchdog {
        Watchdog(
            checks: checks, pause: 100, time: time, feed: { [feedCount] in feedCount.withLockedValue { $0 += 1 } },
            log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    @Test func `F48: the watchdog is fed once per interval, after the last vital check`() {
        let (one, two) = (TestPart(), TestPart())
        let watchdog = watchdog(one.check("one"), two.check("two"))
        watchdog.start()
        for beat in 1...5 {
            one.complete()
            #expect(feedings == beat - 1)
            two.complete()
            #expect(feedings == beat)
            time.advance(milliseconds: 99)
            #expect(one.runningChecks == 0)
            time.advance(milliseconds: 1)
            #expect(feedings == beat && one.runningChecks == 1)
        }
    }

    @Test func `F48: a stuck check prevents feeding and is not started again until it completes`() {
        let (one, two) = (TestPart(), TestPart())
        let watchdog = watchdog(one.check("one"), two.check("two"))
        watchdog.start()
        for _ in 0..<1_000 {
            one.complete()
            time.advance(milliseconds: 100)
        }
        #expect(feedings == 0)
        #expect(two.runningChecks == 1)
        one.complete()
        two.complete()
        #expect(feedings == 1)
        // Each interval starts a new check.
        time.advance(milliseconds: 100)
        one.complete()
        #expect(feedings == 1)
    }

    @Test func `I9: a check that waits for a disk does not prevent feeding`() {
        let (loop, disk) = (TestPart(), TestPart())
        let watchdog = watchdog(loop.check("loop"), disk.check("disk", isVital: false))
        watchdog.start()
        for _ in 0..<10 {
            loop.complete()
            time.advance(milliseconds: 100)
        }
        #expect(feedings == 10)
        #expect(disk.runningChecks == 1)
    }

    @Test func `no check starts after a stop`() {
        let check = TestPart()
        let watchdog = watchdog(check.check("one"))
        watchdog.start()
        watchdog.stop()
        // A check that started before the stop completes without feeding.
        check.complete()
        time.advance(milliseconds: 1_000)
        #expect(feedings == 0)
        #expect(check.runningChecks == 0)
        #expect(time.timers == 0)
    }

    @Test func `F48: every vital part completes its check by its own work`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let tasks = try TaskThreads(named: "test", count: 1)
        let pool = try FairPool(named: "test", threads: 1) { 0 }
        let fetcher = try FetcherClient(
            settings: FetcherSettings(version: "", logLevel: ""), connector: NoFetcher(),
            log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        try fetcher.start()
        let checks = Watchdog.checks(loops: group, tasks: tasks, fetcher: fetcher, pools: [("images", pool)])
        let vital = ["event loop 0", "event loop 1", "tasks", "downloads"]
        #expect(checks.filter(\.isVital).map(\.name) == vital)
        #expect(checks.filter { !$0.isVital }.map(\.name) == ["images"])
        for check in checks { await withCheckedContinuation { sign in check.start { sign.resume() } } }

        // No check completes while its part is blocked.
        let gate = Gate()
        group.makeIterator().first { _ in true }?.execute { gate.pass() }
        await gate.reached()
        let completed = NIOLockedValueBox<Set<String>>([])
        for check in checks { check.start { completed.withLockedValue { _ = $0.insert(check.name) } } }
        while completed.withLockedValue({ $0.count }) < checks.count - 1 { await Task.yield() }
        #expect(!completed.withLockedValue { $0.contains("event loop 0") })
        gate.open()
        fetcher.shutdown()
        pool.stop()
        try await group.shutdownGracefully()
    }

    @Test func `F48: a blocked event loop prevents feeding`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let loops = Array(group.makeIterator())
        let answers = NIOLockedValueBox(0)
        let checks = loops.map { loop in
            Watchdog.HealthCheck(name: "loop", isVital: true) { alive in
                loop.execute {
                    alive()
                    answers.withLockedValue { $0 += 1 }
                }
            }
        }
        let watchdog = Watchdog(
            checks: checks, pause: 100, time: time, feed: { [feedCount] in feedCount.withLockedValue { $0 += 1 } },
            log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let gate = Gate()
        loops[1].execute { gate.pass() }
        await gate.reached()
        watchdog.start()
        while answers.withLockedValue({ $0 }) < 1 { await Task.yield() }
        time.advance(milliseconds: 100)
        #expect(feedings == 0)
        gate.open()
        // One loop completed in the second interval, the other after it resumed.
        while answers.withLockedValue({ $0 }) < 3 { await Task.yield() }
        #expect(feedings == 1)
        watchdog.stop()
        try await group.shutdownGracefully()
    }
}

/// A connector without a fetcher.
private struct NoFetcher: HelperConnector {
    func open() throws(SystemError) -> CInt { throw SystemError("connect", code: ENOENT) }
}
