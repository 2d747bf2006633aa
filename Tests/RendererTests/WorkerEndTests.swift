import CacheCore
import CacheFakes
import Glibc
import HelperProtocol
import ImageOptions
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import HelperClient

/// Workers that fail, and the effect on their images.
@Suite(.timeLimit(.minutes(2))) struct WorkerEndTests {
    @Test func `F81: a worker that does not exit when its connection is closed is killed`() throws {
        let renderer = try Renderer()
        var worker: RendererWorker? = try renderer.worker()
        let other = try renderer.worker()
        let processes = try renderer.workers()
        let stuck = try #require(processes.min())
        #expect(processes.count == 2)
        kill(stuck, SIGSTOP)
        _ = worker
        worker = nil
        try waitUntil { try renderer.workers() == processes.filter { $0 != stuck } }
        #expect(try other.render(try TestImages.named("baseline.jpg"), side: 8).reply.outcome == .rendered)
    }

    @Test func `the renderer exits when it has had no worker for a while`() throws {
        let renderer = try Renderer(idle: 0, hasWorker: true)
        let worker = try #require(renderer.firstWorker)
        try worker.receiveGreeting()
        #expect(try worker.render(try TestImages.named("baseline.jpg"), side: 8).reply.outcome == .rendered)
        worker.hangUp()
        #expect(try renderer.waitForEnd() == 0)
    }

    @Test func `F82: without a greeting there is no renderer, and no image is at fault`() throws {
        for connector in [FakeWorkers(sending: []), FakeWorkers(sending: Array(repeating: 0x78, count: 9))] {
            let time = ManualTime()
            let client = client(connector, time)
            for attempts in [1, 2, 2] {
                #expect(result(of: client) == .failure(.unavailable))
                #expect(connector.opened.withLockedValue { $0 } == attempts)
            }
            time.advance(seconds: 1)
            #expect(result(of: client) == .failure(.unavailable))
            #expect(connector.opened.withLockedValue { $0 } == 3)
        }
    }

    @Test func `F82: a process that sends no greeting is closed after a timeout`() throws {
        let connector = FakeWorkers(sending: [], andCloses: false)
        let client = client(connector, HastyTime())
        #expect(result(of: client) == .failure(.unavailable))
    }

    @Test func `F81: the connection to an idle worker is closed after ten seconds`() throws {
        let time = ManualTime()
        let connector = FakeWorkers(sending: Self.replies(3), andCloses: false)
        let client = client(connector, time)
        #expect(result(of: client) == .failure(.unreadableImage))
        time.advance(seconds: 9)
        // Another request restarts the ten seconds.
        #expect(result(of: client) == .failure(.unreadableImage))
        time.advance(seconds: 9)
        #expect(connector.opened.withLockedValue { $0 } == 1)
        #expect(!connector.isClosed)
        time.advance(seconds: 1)
        #expect(connector.isClosed)
        #expect(time.timers == 0)
        #expect(result(of: client) == .failure(.unreadableImage))
        #expect(connector.opened.withLockedValue { $0 } == 2)
    }

    @Test func `a worker with another limit of pixels is not reused`() throws {
        let connector = FakeWorkers(sending: Self.replies(3), andCloses: false)
        let client = client(connector)
        for (pixels, workers) in [(100, 1), (100, 1), (200, 2)] {
            #expect(result(of: client, mostPixels: pixels) == .failure(.unreadableImage))
            #expect(connector.opened.withLockedValue { $0 } == workers)
        }
    }

    /// A greeting, and replies that report a broken image.
    private static func replies(_ count: UInt32) -> [UInt8] {
        var bytes = ByteBuffer()
        WorkerGreeting().write(to: &bytes)
        for number in 0..<count { RenderReply(number: number + 1, outcome: .broken).write(to: &bytes) }
        return Array(bytes.readableBytesView)
    }

    @Test func `F81: an image whose worker ends after the greeting is at fault`() throws {
        let connector = FakeWorkers(sending: Self.replies(0))
        let client = client(connector)
        #expect(result(of: client) == .failure(.unreadableImage))
        #expect(result(of: client) == .failure(.unreadableImage))
        #expect(connector.opened.withLockedValue { $0 } == 2)
    }

    private func client(_ connector: FakeWorkers, _ time: any Timekeeping = ManualTime()) -> RendererClient {
        RendererClient(connector: connector, pool: ImmediatePool(), time: time, log: Logger(label: "test"))
    }

    private func result(
        of client: RendererClient, mostPixels: Int = 100
    ) -> Result<ByteBuffer, RenditionFailure>? {
        let result = NIOLockedValueBox<Result<ByteBuffer, RenditionFailure>?>(nil)
        let options = RenditionOptions(
            size: 8, mostPixels: mostPixels, mostBytes: 100)
        client.render(ByteBuffer(string: "image"), options, for: 1_000, isWanted: { true }) { made in
            result.withLockedValue { $0 = made }
        }
        return result.withLockedValue { $0 }
    }
}

private func waitUntil(_ condition: () throws -> Bool, sourceLocation: SourceLocation = #_sourceLocation) throws {
    for _ in 0..<60_000 {
        if try condition() { return }
        usleep(1_000)
    }
    Issue.record("the condition did not become true", sourceLocation: sourceLocation)
}

/// A clock that advances by an hour with each reading.
private struct HastyTime: Timekeeping {
    private let hours = NIOLockedValueBox<Int64>(0)
    var now: Int64 { 0 }
    var wallClock: Int64 { 0 }
    var uptime: Int64 {
        hours.withLockedValue {
            $0 += 1
            return $0 * 3_600_000
        }
    }

    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any CacheCore.Timer {
        ManualTime().after(milliseconds: milliseconds, work)
    }
}

/// Workers that send the same bytes, whatever they receive.
private final class FakeWorkers: HelperConnector {
    let opened = NIOLockedValueBox(0)
    private let sent: [UInt8]
    private let closes: Bool
    private let kept = NIOLockedValueBox<[CInt]>([])

    init(sending sent: [UInt8], andCloses closes: Bool = true) { (self.sent, self.closes) = (sent, closes) }

    deinit { for end in kept.withLockedValue({ $0 }) { close(end) } }

    /// Whether the client has closed the connection that it opened last.
    var isClosed: Bool {
        var wait = pollfd(fd: kept.withLockedValue { $0.last ?? -1 }, events: 0, revents: 0)
        poll(&wait, 1, 0)
        return wait.revents & Int16(POLLHUP) != 0
    }

    func open() throws(SystemError) -> CInt {
        opened.withLockedValue { $0 += 1 }
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0, fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0,
            write(ends[1], sent, sent.count) == sent.count
        else { throw SystemError("socketpair") }
        if closes { shutdown(ends[1], CInt(SHUT_WR)) }
        kept.withLockedValue { $0.append(ends[1]) }
        return ends[0]
    }
}
