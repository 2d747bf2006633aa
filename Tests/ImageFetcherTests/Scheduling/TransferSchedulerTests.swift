import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// Wakeups of the fetcher's thread.
@Suite struct TransferSchedulerTests {
    private let scheduler = TransferScheduler(
        settings: FetcherSettings(version: "tests", logLevel: "info"), environment: .init(),
        log: Logger(label: "tests", factory: { _ in SwiftLogNoOpLogHandler() }))
    private let wakeups = NIOLockedValueBox(0)
    private let now = NIODeadline.now()

    init() {
        let isOpen = scheduler.open { [wakeups] in wakeups.withLockedValue { $0 += 1 } }
        #expect(isOpen)
    }

    private var woken: Int { wakeups.withLockedValue { $0 } }

    /// - Parameter timeout: in milliseconds.
    private func start(_ count: Int = 1, connections: Int = 2, timeout: Int64 = 4_000) throws {
        for number in 0..<count {
            var origin = Origin.test(connections: connections)
            origin.timeout = timeout
            let download = Download.test("https://a.example/\(number)", of: origin)
            _ = try scheduler.start(.download(download), at: now, onEnd: { _ in })
        }
    }

    @Test func `F20: the thread is woken once for all work before its next round`() throws {
        #expect(scheduler.fetchWork(at: now)?.begin.isEmpty == true)
        try start(2)
        #expect(woken == 1)
        scheduler.callOnLoop {}
        #expect(woken == 1)
        let work = scheduler.fetchWork(at: now)
        #expect(work?.begin.count == 2 && work?.livenessCallbacks.count == 1)
        scheduler.callOnLoop {}
        #expect(woken == 2)
    }

    @Test func `a queued download wakes the thread only if its deadline is earlier than the thread's next one`()
        throws
    {
        try start(2)
        let begun = try #require(scheduler.fetchWork(at: now)).begin
        let before = woken
        try start(timeout: 3_000)
        #expect(woken == before + 1)
        #expect(scheduler.fetchWork(at: now)?.nextDeadline == now + .milliseconds(3_000))
        try start(3, timeout: 3_000)
        #expect(woken == before + 1 && scheduler.fetchWork(at: now)?.begin.isEmpty == true)
        // A free connection requires a wakeup.
        scheduler.finish(begun[0], nil, .init())
        #expect(woken == before + 2)
        #expect(scheduler.fetchWork(at: now)?.begin.count == 1)
    }
}
