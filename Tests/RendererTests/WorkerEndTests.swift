import CacheCore
import CacheFakes
import Glibc
import HelperProtocol
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import HelperClient

/// What becomes of a worker that does not do its part, and of the picture that it has.
@Suite(.timeLimit(.minutes(2))) struct WorkerEndTests {
    @Test func `F81: a worker that does not end when its connection is closed is killed`() throws {
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
        #expect(try other.render(try Pictures.named("baseline.jpg"), side: 8).answer.outcome == .rendered)
    }

    @Test func `the renderer ends when it has no worker for a while`() throws {
        let renderer = try Renderer(idle: 0, hasWorker: true)
        let worker = try #require(renderer.firstWorker)
        #expect(try worker.receive(1) == [WorkerGreeting.byte])
        #expect(try worker.render(try Pictures.named("baseline.jpg"), side: 8).answer.outcome == .rendered)
        worker.hangUp()
        #expect(try renderer.waitForEnd() == 0)
    }

    @Test func `F82: where nothing greets there is no renderer, and no picture is at fault`() throws {
        for link in [PlayedWorkers(saying: []), PlayedWorkers(saying: Array("x".utf8))] {
            let client = client(link)
            #expect(result(of: client) == .failure(.unavailable))
            // Another is not looked for at once.
            #expect(result(of: client) == .failure(.unavailable))
            #expect(link.opened.withLockedValue { $0 } == 1)
        }
    }

    @Test func `F82: a process that never greets is not waited for`() throws {
        let link = PlayedWorkers(saying: [], andCloses: false)
        let client = client(link, HastyTime())
        #expect(result(of: client) == .failure(.unavailable))
    }

    @Test func `F81: a worker without work is closed after ten seconds, whatever it does`() throws {
        let time = ManualTime()
        let link = PlayedWorkers(saying: Self.answers(3), andCloses: false)
        let client = client(link, time)
        #expect(result(of: client) == .failure(.badPicture))
        time.advance(seconds: 9)
        // Another request begins its ten seconds anew.
        #expect(result(of: client) == .failure(.badPicture))
        time.advance(seconds: 9)
        #expect(link.opened.withLockedValue { $0 } == 1)
        #expect(!link.isClosed)
        time.advance(seconds: 1)
        #expect(link.isClosed)
        #expect(time.timers == 0)
        #expect(result(of: client) == .failure(.badPicture))
        #expect(link.opened.withLockedValue { $0 } == 2)
    }

    @Test func `a worker whose limit of pixels is another is not used`() throws {
        let link = PlayedWorkers(saying: Self.answers(3), andCloses: false)
        let client = client(link)
        for (pixels, workers) in [(100, 1), (100, 1), (200, 2)] {
            #expect(result(of: client, mostPixels: pixels) == .failure(.badPicture))
            #expect(link.opened.withLockedValue { $0 } == workers)
        }
    }

    /// A greeting, and answers that say that a picture is broken.
    private static func answers(_ count: UInt32) -> [UInt8] {
        var bytes = ByteBuffer(bytes: [WorkerGreeting.byte])
        for number in 1...count { RenderAnswer(number: number, outcome: .broken).write(to: &bytes) }
        return Array(bytes.readableBytesView)
    }

    @Test func `F81: a picture whose worker ends when it has greeted is at fault`() throws {
        let link = PlayedWorkers(saying: [WorkerGreeting.byte])
        let client = client(link)
        #expect(result(of: client) == .failure(.badPicture))
        #expect(result(of: client) == .failure(.badPicture))
        #expect(link.opened.withLockedValue { $0 } == 2)
    }

    private func client(_ link: PlayedWorkers, _ time: any Timekeeping = ManualTime()) -> RendererClient {
        RendererClient(link: link, pool: ImmediatePool(), time: time, log: Logger(label: "test"))
    }

    private func result(
        of client: RendererClient, mostPixels: Int = 100
    ) -> Result<ByteBuffer, RenditionFailure>? {
        let result = NIOLockedValueBox<Result<ByteBuffer, RenditionFailure>?>(nil)
        let wish = RenditionOptions(
            side: 8, style: RenditionStyle(fit: .cover, format: .source), mostPixels: mostPixels, mostBytes: 100)
        client.render(ByteBuffer(string: "picture"), wish, for: 1_000, isWanted: { true }) { made in
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
    Issue.record("it did not come about", sourceLocation: sourceLocation)
}

/// Time of which hours pass with each look at it.
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

/// Workers that say something, and end.
private final class PlayedWorkers: HelperConnector {
    let opened = NIOLockedValueBox(0)
    private let saying: [UInt8]
    private let closes: Bool
    private let kept = NIOLockedValueBox<[CInt]>([])

    init(saying: [UInt8], andCloses closes: Bool = true) { (self.saying, self.closes) = (saying, closes) }

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
            write(ends[1], saying, saying.count) == saying.count
        else { throw SystemError("socketpair") }
        if closes { shutdown(ends[1], CInt(SHUT_WR)) }
        kept.withLockedValue { $0.append(ends[1]) }
        return ends[0]
    }
}
