import CacheCore
import Glibc
import HelperProtocol
import ImageFetcher
import LinuxSupport
import Logging
import NIOCore
import Origins
import SocketLoops

/// Performs the daemon's requests and reports the outcomes. Used on the fetcher's loop only.
final class FetcherService: StreamHandler {
    /// Unsent bytes beyond which the loop blocks until the daemon has read some. The daemon always reads.
    private static var maximumUnsent: Int { 16 << 20 }

    private let stream: SocketLoops.Stream
    private let fetcher: CurlImageFetcher
    private let loop: SocketLoop
    private let log: Logger
    private let update: (FetcherSettings) -> Void
    private var assembler = MessageAssembler(maximumBody: 0)
    private var origins: [String: Origin] = [:]
    private var tasks: [UInt64: any DownloadHandle] = [:]
    /// Written messages, which may contain tokens and are wiped once sent.
    private var unwiped: [ByteBuffer] = []
    private var willFlush = false

    init(
        _ stream: SocketLoops.Stream, fetcher: CurlImageFetcher, loop: SocketLoop, log: Logger,
        update: @escaping (FetcherSettings) -> Void
    ) {
        (self.stream, self.fetcher, self.loop) = (stream, fetcher, loop)
        (self.log, self.update) = (log, update)
    }

    func received(_ bytes: ByteBuffer) {
        do throws(MessageError) {
            try assembler.receive(bytes) { fields, _ throws(MessageError) in
                try perform(try FetcherRequest(fields) { origins[$0] })
            }
        } catch {
            // The daemon has the same version, so only a defect can cause this.
            log.error("invalid message from the daemon", metadata: ["reason": "\(error)"])
            _exit(1)
        }
    }

    private func perform(_ request: FetcherRequest) throws(MessageError) {
        switch request {
        case .settings(let settings): update(settings)
        case .origin(let name, let settings):
            let origin = try Origin(name: name, encodedSettings: settings)
            origins[name] = origin
            if let missing = CurlImageFetcher.missingProtocol(of: origin) {
                log.error("origin without LDAP", metadata: ["origin": "\(name)", "reason": "\(missing)"])
            }
        case .download(let id, let download): start(id) { .download(download) }
        case .token(let id, let request): start(id) { () throws(FetchFailure) in try TransferJob(request) }
        case .check(let id, let download): send(.checked(id, fetcher.refusal(of: .download(download))))
        case .cancel(let id): tasks.removeValue(forKey: id)?.cancel()
        case .ping(let number): fetcher.callOnLoop(onLoop { $0.send(.pong(number)) })
        case .statistics(let id): send(.statistics(id, fetcher.statistics))
        }
    }

    private func start(_ id: UInt64, _ job: () throws(FetchFailure) -> TransferJob) {
        let bound = NIOLoopBound(self, eventLoop: loop)
        do throws(FetchFailure) {
            tasks[id] = try fetcher.start(try job()) { outcome in bound.value.complete(id, outcome) }
        } catch {
            send(.failed(id, error))
        }
    }

    private func onLoop(_ work: @escaping @Sendable (FetcherService) -> Void) -> @Sendable () -> Void {
        let bound = NIOLoopBound(self, eventLoop: loop)
        return { work(bound.value) }
    }

    private func complete(_ id: UInt64, _ outcome: TransferOutcome) {
        tasks[id] = nil
        switch outcome {
        case .download(.image(let image)):
            send(.image(id, image.headers, redirectedTo: image.redirectedTo), body: image.bytes.image)
        case .download(.missing(let headers)): send(.missing(id, headers))
        case .download(.unusable(let failure, let headers)): send(.unusable(id, headers, failure))
        case .download(.notModified(let headers)): send(.notModified(id, headers))
        case .token(.success(let grant)): send(.token(id, grant))
        case .download(.failed(let failure)), .token(.failure(let failure)): send(.failed(id, failure))
        }
    }

    /// Queues a message. All messages of a round of the loop are sent together.
    private func send(_ report: FetcherReport, body: ByteBuffer? = nil) {
        var message = ByteBuffer()
        report.write(to: &message, body: body?.readableBytes ?? 0)
        stream.write(message)
        unwiped.append(message)
        if let body { stream.write(body) }
        if stream.unsent > Self.maximumUnsent { return flush() }
        guard !willFlush else { return }
        willFlush = true
        loop.execute(onLoop { $0.flush() })
    }

    private func flush() {
        willFlush = false
        stream.flush(downTo: Self.maximumUnsent)
        outputMoved()
    }

    func outputMoved() {
        guard stream.unsent == 0 else { return }
        for message in unwiped { message.wipeReadableBytesOfAll() }
        unwiped = []
    }

    func inputEnded() { _exit(0) }

    func closed(_ error: IOError?) { _exit(0) }
}
