import CacheCore
import Glibc
import HelperClient
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import HelperProtocol

/// Fetchers whose part the test plays, one after the other.
final class PlayedFetchers: HelperConnector {
    private let ends = NIOLockedValueBox<[CInt]>([])
    private let hasOpened = Semaphore()
    /// How often there is none to be had.
    let refusals: NIOLockedValueBox<Int>

    init(refusals: Int = 0) { self.refusals = NIOLockedValueBox(refusals) }

    func open() throws(SystemError) -> CInt {
        let isRefused = refusals.withLockedValue { refusals in
            defer { refusals = max(0, refusals - 1) }
            return refusals > 0
        }
        if isRefused { throw SystemError("connect", code: ECONNREFUSED) }
        var pair: (CInt, CInt) = (-1, -1)
        let code = withUnsafeMutableBytes(of: &pair) { pair in
            socketpair(
                AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0,
                pair.assumingMemoryBound(to: CInt.self).baseAddress)
        }
        guard code == 0, fcntl(pair.0, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("socketpair") }
        ends.withLockedValue { $0.append(pair.1) }
        hasOpened.signal()
        return pair.0
    }

    /// The next that the client starts, behind the settings that it says first. Blocks until it does.
    func next() throws -> PlayedFetcher {
        hasOpened.wait()
        let fetcher = PlayedFetcher(ends.withLockedValue { $0.removeFirst() })
        guard case .settings = try fetcher.hear() else { throw MessageError("begins without settings") }
        return fetcher
    }
}

/// The other end of a client's connection.
final class PlayedFetcher {
    private let descriptor: CInt
    private var assembler = MessageAssembler(longestBody: 0)
    private var heard: [FetcherRequest] = []

    init(_ descriptor: CInt) {
        self.descriptor = descriptor
        // What never comes is a failure and not a test that hangs.
        var patience = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    /// The next request. Blocks until it comes; throws once the client has closed.
    func hear() throws -> FetcherRequest {
        while heard.isEmpty {
            var piece = [UInt8](repeating: 0, count: 4_096)
            let count = try retryingInterrupts("recv") { recv(descriptor, &piece, piece.count, 0) }
            guard count > 0 else { throw Self.end }
            try assembler.receive(ByteBuffer(bytes: piece.prefix(count))) { fields, _ throws(MessageError) in
                heard.append(try FetcherRequest(fields))
            }
        }
        return heard.removeFirst()
    }

    /// The next request that is no origin and no question for a sign of life.
    func task() throws -> (id: UInt64, request: FetcherRequest) {
        while true {
            let request = try hear()
            switch request {
            case .download(let id, _), .token(let id, _), .cancel(let id), .statistics(let id): return (id, request)
            case .settings, .origin, .isAlive: continue
            }
        }
    }

    func say(_ report: FetcherReport, body: [UInt8] = []) throws {
        var message = ByteBuffer()
        report.write(to: &message, body: body.count)
        try say(Array(message.readableBytesView) + body)
    }

    func say(_ bytes: [UInt8]) throws { try writeAll(bytes, to: descriptor) }

    /// Hangs up.
    func end() { shutdown(descriptor, CInt(SHUT_RDWR)) }

    /// Whether the client closes, whatever it says before. Blocks until it does.
    func isLeft() -> Bool {
        while true {
            do {
                _ = try hear()
            } catch let error as SystemError {
                return error.code == ECONNRESET
            } catch {
                return (error as? MessageError) == Self.end
            }
        }
    }

    private static let end = MessageError("is the end")
}

/// Runs `body` with a client whose fetchers the test plays, and shuts it down.
func withClient(
    patience: TimeAmount = .hours(1), refusals: Int = 0, _ configure: (inout FetcherSettings) -> Void = { _ in },
    _ body: (FetcherClient, PlayedFetchers) async throws -> Void
) async throws {
    var settings = FetcherSettings(version: "1", logLevel: "info")
    configure(&settings)
    let fetchers = PlayedFetchers(refusals: refusals)
    let log = Logger(label: "tests") { _ in SwiftLogNoOpLogHandler() }
    let client = try FetcherClient(settings: settings, link: fetchers, patience: patience, log: log)
    try client.start()
    defer { client.shutdown() }
    try await withTaskExecutorPreference(try threads.get()) { try await body(client, fetchers) }
}

/// What plays a fetcher blocks until it is asked. On Swift's own pool, of a thread for each core, those who block could
/// keep the one who asks from running. There are twice as many here as tests run at once.
private let threads = Result { try TaskThreads(named: "played", count: 32) }

extension FetcherClient {
    private static let origin = Origin(name: "test", url: "https://origin.test/{profile}")

    /// Begins a download, whose outcome is to be waited for.
    func begin(
        uid: UInt32 = 1_000, condition: DownloadCondition? = nil
    ) throws -> (outcome: Waited<DownloadOutcome>, handle: any DownloadHandle) {
        let outcome = Waited<DownloadOutcome>()
        let target = DownloadTarget(url: "https://origin.test/bob", isNamedByClient: false)
        let download = Download(
            uid: uid, origin: Self.origin, target: target, token: Secret("token".utf8), condition: condition,
            framing: .bare)
        return (outcome, try start(download) { outcome.tell($0) })
    }

    func beginRefresh() throws -> Waited<Result<TokenGrant, TransferFailure>> {
        let outcome = Waited<Result<TokenGrant, TransferFailure>>()
        let request = TokenRequest(
            uid: 1_000, origin: Self.origin, endpoint: TokenEndpoint(url: "https://t.test/", clientID: "c"),
            refreshToken: Secret("r".utf8))
        _ = try refresh(request) { outcome.tell($0) }
        return outcome
    }
}

/// What is told once; a second time is a mistake.
final class Waited<Value: Sendable>: Sendable {
    private let values = NIOLockedValueBox<[Value]>([])
    private let isTold = Semaphore()

    func tell(_ value: Value) {
        let count = values.withLockedValue { values in
            values.append(value)
            return values.count
        }
        #expect(count == 1)
        isTold.signal()
    }

    /// Blocks until it is told.
    func value() throws -> Value {
        isTold.wait()
        return try #require(values.withLockedValue { $0.first })
    }

    var isUntold: Bool { values.withLockedValue(\.isEmpty) }
}

extension DownloadOutcome {
    var failure: CacheFailure? {
        switch self {
        case .failed(let failure), .unusable(let failure, _): failure
        case .image, .missing, .notModified: nil
        }
    }
}
