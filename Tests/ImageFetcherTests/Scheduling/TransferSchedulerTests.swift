import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// When the fetcher's thread is woken up, and when it need not be.
@Suite struct TransferSchedulerTests {
    private let scheduler = TransferScheduler(
        configuration: .init(), log: Logger(label: "tests", factory: { _ in SwiftLogNoOpLogHandler() }))
    private let wakeups = NIOLockedValueBox(0)
    private let now = NIODeadline.now()

    init() {
        let isOpen = scheduler.open { [wakeups] in wakeups.withLockedValue { $0 += 1 } }
        #expect(isOpen)
    }

    private var woken: Int { wakeups.withLockedValue { $0 } }

    /// - Parameter timeout: milliseconds.
    private func start(_ count: Int = 1, connections: Int = 2, timeout: Int64 = 4_000) throws {
        for number in 0..<count {
            var origin = Origin.test(connections: connections)
            origin.timeout = timeout
            let target = DownloadTarget(url: "https://a.example/\(number)", isNamedByClient: false)
            _ = try scheduler.start(
                .download(Download(uid: 1, origin: origin, target: target, token: nil, framing: .bare)), at: now,
                onEnd: { _ in })
        }
    }

    @Test func `F20: the thread is called once for all that comes until it looks`() throws {
        #expect(scheduler.takeWork(at: now)?.begin.isEmpty == true)
        try start(2)
        #expect(woken == 1)
        scheduler.whenAlive {}
        #expect(woken == 1)
        let work = scheduler.takeWork(at: now)
        #expect(work?.begin.count == 2 && work?.signs.count == 1)
        scheduler.whenAlive {}
        #expect(woken == 2)
    }

    @Test func `a download that has to wait wakes the thread only if its time is up before the thread would look`()
        throws
    {
        try start(2)
        let begun = try #require(scheduler.takeWork(at: now)).begin
        let before = woken
        try start(timeout: 3_000)
        #expect(woken == before + 1)
        #expect(scheduler.takeWork(at: now)?.nextDeadline == now + .milliseconds(3_000))
        try start(3, timeout: 3_000)
        #expect(woken == before + 1 && scheduler.takeWork(at: now)?.begin.isEmpty == true)
        // There is room again: that is something to look at.
        scheduler.finish(begun[0], nil, .init())
        #expect(woken == before + 2)
        #expect(scheduler.takeWork(at: now)?.begin.count == 1)
    }
}
