import CacheCore
import Glibc
import HelperProtocol
import ImageFetcher
import LinuxSupport
import NIOCore
import SocketLoops

/// Does what the daemon asks for, and says what came of it. On the downloads' loop alone.
final class FetcherService: StreamHandler {
    /// Bytes that may wait to be read by the daemon. It always reads; so beyond this the loop waits for it.
    private static var mostUnsent: Int { 16 << 20 }

    private let stream: SocketLoops.Stream
    private let fetcher: CurlImageFetcher
    private let loop: SocketLoop
    private let update: (FetcherSettings) -> Void
    private var assembler = MessageAssembler(longestBody: 0)
    private var origins: [String: Origin] = [:]
    private var tasks: [UInt64: any DownloadHandle] = [:]
    /// What has been written, to be wiped once it is sent: tokens may be in it.
    private var unwiped: [ByteBuffer] = []
    private var willFlush = false

    /// - Parameter update: puts other settings in force.
    init(
        _ stream: SocketLoops.Stream, fetcher: CurlImageFetcher, loop: SocketLoop,
        update: @escaping (FetcherSettings) -> Void
    ) {
        (self.stream, self.fetcher, self.loop, self.update) = (stream, fetcher, loop, update)
    }

    // MARK: What the daemon says

    func received(_ bytes: ByteBuffer) {
        do throws(MessageError) {
            try assembler.receive(bytes) { fields, _ throws(MessageError) in take(try FetcherRequest(fields)) }
        } catch {
            // The daemon is of the same version: one that says what cannot be is none to be served.
            _exit(1)
        }
    }

    private func take(_ request: FetcherRequest) {
        switch request {
        case .settings(let settings): update(settings)
        case .origin(let origin): origins[origin.name] = origin
        case .download(let id, let download): start(id, download)
        case .token(let id, let refresh): start(id, refresh)
        case .cancel(let id): tasks.removeValue(forKey: id)?.cancel()
        case .isAlive(let id): fetcher.whenAlive(onLoop { $0.say(.alive(id)) })
        case .statistics(let id): say(.statistics(id, fetcher.statistics))
        }
    }

    private func start(_ id: UInt64, _ request: DownloadRequest) {
        guard let origin = origins[request.origin] else { return say(.failed(id, .origin("no such origin"))) }
        let download = Download(
            uid: request.uid, origin: origin, target: request.target, token: request.token,
            timeout: request.timeout, condition: request.condition, framing: .bare)
        let bound = NIOLoopBound(self, eventLoop: loop)
        do throws(CacheFailure) {
            tasks[id] = try fetcher.start(download) { outcome in bound.value.ended(id, outcome) }
        } catch {
            say(.failed(id, error))
        }
    }

    private func start(_ id: UInt64, _ refresh: TokenRefresh) {
        guard let origin = origins[refresh.origin] else {
            return say(.token(id, .failure(.origin("no such origin"))))
        }
        let request = TokenRequest(
            uid: refresh.uid, origin: origin, endpoint: refresh.endpoint, refreshToken: refresh.refreshToken)
        let bound = NIOLoopBound(self, eventLoop: loop)
        do throws(TransferFailure) {
            tasks[id] = try fetcher.refresh(request) { result in
                bound.value.tasks[id] = nil
                bound.value.say(.token(id, result))
            }
        } catch {
            say(.token(id, .failure(error)))
        }
    }

    private func onLoop(_ work: @escaping @Sendable (FetcherService) -> Void) -> @Sendable () -> Void {
        let bound = NIOLoopBound(self, eventLoop: loop)
        return { work(bound.value) }
    }

    // MARK: What it is told

    private func ended(_ id: UInt64, _ outcome: DownloadOutcome) {
        tasks[id] = nil
        switch outcome {
        case .image(let image):
            let bytes = image.bytes.image
            say(.image(id, image.headers, redirectedTo: image.redirectedTo), body: bytes)
        case .missing(let headers): say(.missing(id, headers))
        case .unusable(let failure, let headers): say(.unusable(id, headers, failure))
        case .notModified(let headers): say(.notModified(id, headers))
        case .failed(let failure): say(.failed(id, failure))
        }
    }

    /// Sent with all that this round of the loop has to say.
    private func say(_ report: FetcherReport, body: ByteBuffer? = nil) {
        var message = ByteBuffer()
        report.write(to: &message, body: body?.readableBytes ?? 0)
        stream.write(message)
        unwiped.append(message)
        if let body { stream.write(body) }
        if stream.unsent > Self.mostUnsent { return flush() }
        guard !willFlush else { return }
        willFlush = true
        loop.execute(onLoop { $0.flush() })
    }

    private func flush() {
        willFlush = false
        stream.flush(downTo: Self.mostUnsent)
        outputMoved()
    }

    func outputMoved() {
        guard stream.unsent == 0 else { return }
        for message in unwiped { message.wipeReadableBytesOfAll() }
        unwiped = []
    }

    // MARK: The end

    func inputEnded() { _exit(0) }

    func closed(_ error: IOError?) { _exit(0) }
}
