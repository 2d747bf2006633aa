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
    /// An check that answers when the test has it answer.
    private final class TestOrgan: Sendable {
        private let asked = NIOLockedValueBox<[@Sendable () -> Void]>([])

        var questions: Int { asked.withLockedValue { $0.count } }

        func check(_ name: String, isVital: Bool = true) -> Watchdog.HealthCheck {
            Watchdog.HealthCheck(name: name, isVital: isVital) { answer in
                self.asked.withLockedValue { $0.append(answer) }
            }
        }

        func answer() {
            let answers = asked.withLockedValue { asked in
                defer { asked = [] }
                return asked
            }
            for answer in answers { answer() }
        }
    }

    private let time = ManualTime()
    private let fed = NIOLockedValueBox(0)
    private var meals: Int { fed.withLockedValue { $0 } }

    private func watchdog(_ checks: Watchdog.HealthCheck...) -> Watchdog {
        Watchdog(
            checks: checks, pause: 100, time: time, feed: { [fed] in fed.withLockedValue { $0 += 1 } },
            log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    @Test func `F48: it is fed once a beat, when the last vital check has answered`() {
        let (one, two) = (TestOrgan(), TestOrgan())
        let watchdog = watchdog(one.check("one"), two.check("two"))
        watchdog.start()
        for beat in 1...5 {
            one.answer()
            #expect(meals == beat - 1)
            two.answer()
            #expect(meals == beat)
            time.advance(milliseconds: 99)
            #expect(one.questions == 0)
            time.advance(milliseconds: 1)
            #expect(meals == beat && one.questions == 1)
        }
    }

    @Test func `F48: one that is stuck starves it, is asked no more than once, and when it goes on, it is fed again`() {
        let (one, two) = (TestOrgan(), TestOrgan())
        let watchdog = watchdog(one.check("one"), two.check("two"))
        watchdog.start()
        for _ in 0..<1_000 {
            one.answer()
            time.advance(milliseconds: 100)
        }
        #expect(meals == 0)
        #expect(two.questions == 1)
        one.answer()
        two.answer()
        #expect(meals == 1)
        // It has to answer anew each time.
        time.advance(milliseconds: 100)
        one.answer()
        #expect(meals == 1)
    }

    @Test func `I9: what waits for a disk is no reason for a restart`() {
        let (loop, disk) = (TestOrgan(), TestOrgan())
        let watchdog = watchdog(loop.check("loop"), disk.check("disk", isVital: false))
        watchdog.start()
        for _ in 0..<10 {
            loop.answer()
            time.advance(milliseconds: 100)
        }
        #expect(meals == 10)
        #expect(disk.questions == 1)
    }

    @Test func `nobody is asked behind a stop`() {
        let check = TestOrgan()
        let watchdog = watchdog(check.check("one"))
        watchdog.start()
        watchdog.stop()
        // What was asked before is answered, and feeds nobody.
        check.answer()
        time.advance(milliseconds: 1_000)
        #expect(meals == 0)
        #expect(check.questions == 0)
        #expect(time.timers == 0)
    }

    @Test func `F48: every part that must live is asked, and gives its sign by its own work`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let tasks = try TaskThreads(named: "test", count: 1)
        let pool = try FairPool(named: "test", threads: 1) { 0 }
        let fetcher = try FetcherClient(
            settings: FetcherSettings(version: "", logLevel: ""), link: NoFetcher(),
            log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        try fetcher.start()
        let checks = Watchdog.checks(loops: group, tasks: tasks, fetcher: fetcher, pools: [("images", pool)])
        let vital = ["event loop 0", "event loop 1", "log-ins and log-outs", "downloads"]
        #expect(checks.filter(\.isVital).map(\.name) == vital)
        #expect(checks.filter { !$0.isVital }.map(\.name) == ["disk of images"])
        for check in checks { await withCheckedContinuation { sign in check.ask { sign.resume() } } }

        // Each is silent while what it asks does not come round.
        let gate = Gate()
        group.makeIterator().first { _ in true }?.execute { gate.pass() }
        await gate.reached()
        let answered = NIOLockedValueBox<Set<String>>([])
        for check in checks { check.ask { answered.withLockedValue { _ = $0.insert(check.name) } } }
        while answered.withLockedValue({ $0.count }) < checks.count - 1 { await Task.yield() }
        #expect(!answered.withLockedValue { $0.contains("event loop 0") })
        gate.open()
        fetcher.shutdown()
        pool.stop()
        try await group.shutdownGracefully()
    }

    @Test func `F48: an event loop that is stuck in its own work starves it`() async throws {
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
            checks: checks, pause: 100, time: time, feed: { [fed] in fed.withLockedValue { $0 += 1 } },
            log: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let gate = Gate()
        loops[1].execute { gate.pass() }
        await gate.reached()
        watchdog.start()
        while answers.withLockedValue({ $0 }) < 1 { await Task.yield() }
        time.advance(milliseconds: 100)
        #expect(meals == 0)
        gate.open()
        // What one loop answered at the second beat, and the other since it goes on.
        while answers.withLockedValue({ $0 }) < 3 { await Task.yield() }
        #expect(meals == 1)
        watchdog.stop()
        try await group.shutdownGracefully()
    }
}

/// A fetcher that cannot be had: the daemon lives on without.
private struct NoFetcher: HelperConnector {
    func open() throws(SystemError) -> CInt { throw SystemError("connect", code: ENOENT) }
}
