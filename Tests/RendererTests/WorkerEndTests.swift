import CacheFakes
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import RendererProtocol
import Testing
import ThumbnailCache

@testable import RendererClient

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
        let hours = NIOLockedValueBox<Int64>(0)
        let client = client(link) {
            hours.withLockedValue {
                $0 += 1
                return $0 * 3_600_000
            }
        }
        #expect(result(of: client) == .failure(.unavailable))
    }

    @Test func `F81: a picture whose worker ends when it has greeted is at fault`() throws {
        let link = PlayedWorkers(saying: [WorkerGreeting.byte])
        let client = client(link)
        #expect(result(of: client) == .failure(.badPicture))
        #expect(result(of: client) == .failure(.badPicture))
        #expect(link.opened.withLockedValue { $0 } == 2)
    }

    private func client(
        _ link: PlayedWorkers, now: @escaping @Sendable () -> Int64 = { 0 }
    ) -> RendererClient {
        RendererClient(link: link, pool: ImmediatePool(), now: now, log: Logger(label: "test"))
    }

    private func result(of client: RendererClient) -> Result<ByteBuffer, RenditionFailure>? {
        let result = NIOLockedValueBox<Result<ByteBuffer, RenditionFailure>?>(nil)
        let wish = RenditionWish(
            side: 8, style: RenditionStyle(fit: .cover, format: .source), mostPixels: 100, mostBytes: 100)
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

/// Workers that say something, and end.
private final class PlayedWorkers: HelperLink {
    let opened = NIOLockedValueBox(0)
    private let saying: [UInt8]
    private let closes: Bool
    private let kept = NIOLockedValueBox<[CInt]>([])

    init(saying: [UInt8], andCloses closes: Bool = true) { (self.saying, self.closes) = (saying, closes) }

    deinit { for end in kept.withLockedValue({ $0 }) { close(end) } }

    func open() throws(SystemError) -> CInt {
        opened.withLockedValue { $0 += 1 }
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0, fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0,
            write(ends[1], saying, saying.count) == saying.count
        else { throw SystemError("socketpair") }
        if closes { close(ends[1]) } else { kept.withLockedValue { $0.append(ends[1]) } }
        return ends[0]
    }
}
