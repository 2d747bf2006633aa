import CacheCore
import Glibc
import HelperClient
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import HelperProtocol

/// Fetchers that the test controls, one after the other.
final class FakeFetchers: HelperConnector {
    private let ends = NIOLockedValueBox<[CInt]>([])
    private let hasOpened = Semaphore()
    /// The number of attempts that fail.
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
        guard fcntl(pair.1, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
        ends.withLockedValue { $0.append(pair.1) }
        hasOpened.signal()
        return pair.0
    }

    /// The next fetcher that the client starts, after the settings and the first ping. Blocks until the client starts
    /// it.
    func next() throws -> FakeFetcher {
        hasOpened.wait()
        let fetcher = FakeFetcher(ends.withLockedValue { $0.removeFirst() })
        guard case .settings = try fetcher.receive() else { throw MessageError("no settings") }
        guard case .ping(let number) = try fetcher.receive() else { throw MessageError("no ping") }
        try fetcher.send(.pong(number))
        return fetcher
    }
}

/// The other end of a client's connection.
final class FakeFetcher {
    private let socket: MessageSocket

    init(_ descriptor: CInt) { socket = MessageSocket(descriptor) }

    deinit { close(socket.descriptor) }

    /// The next request. Blocks until it arrives; throws once the client has closed the connection, and after a minute,
    /// so that a missing request fails the test.
    func receive() throws -> FetcherRequest {
        guard let (fields, _) = try socket.receive(by: socket.deadline(in: 60_000)) else { throw Self.closed }
        return try FetcherRequest(fields) { Origin(name: $0, url: "") }
    }

    /// The next request that is neither an origin nor a ping.
    func task() throws -> (id: UInt64, request: FetcherRequest) {
        while true {
            let request = try receive()
            switch request {
            case .download(let id, _), .token(let id, _), .cancel(let id), .check(let id, _),
                .statistics(let id):
                return (id, request)
            case .settings, .origin, .ping: continue
            }
        }
    }

    func send(_ report: FetcherReport, body: [UInt8] = []) throws {
        var message = ByteBuffer()
        report.write(to: &message, body: body.count)
        try socket.send(message, body: ByteBuffer(bytes: body), by: socket.deadline(in: 60_000))
    }

    func send(_ bytes: [UInt8]) throws { try socket.send(ByteBuffer(bytes: bytes), by: socket.deadline(in: 60_000)) }

    /// Closes the connection.
    func end() { shutdown(socket.descriptor, CInt(SHUT_RDWR)) }

    /// Blocks until the client closes the connection. False if that does not happen.
    func isClosed() -> Bool {
        while true {
            do {
                _ = try receive()
            } catch let error as SystemError {
                return error.code == ECONNRESET
            } catch {
                return (error as? MessageError) == Self.closed
            }
        }
    }

    private static let closed = MessageError("closed")
}

/// Runs `body` with a client whose fetchers the test controls, and shuts it down.
func withClient(
    pingInterval: TimeAmount = .hours(1), refusals: Int = 0, _ configure: (inout FetcherSettings) -> Void = { _ in },
    _ body: (FetcherClient, FakeFetchers) async throws -> Void
) async throws {
    var settings = FetcherSettings(version: "1", logLevel: "info")
    configure(&settings)
    let fetchers = FakeFetchers(refusals: refusals)
    let log = Logger(label: "tests") { _ in SwiftLogNoOpLogHandler() }
    // The client may end while a fetcher writes to it.
    signal(SIGPIPE, SIG_IGN)
    let client = try FetcherClient(settings: settings, connector: fetchers, pingInterval: pingInterval, log: log)
    try client.start()
    defer { client.shutdown() }
    try await withTaskExecutorPreference(try threads.get()) { try await body(client, fetchers) }
}

/// A fake fetcher blocks until it receives a request. On Swift's own pool, with a thread for each core, blocked
/// fetchers could keep the sender of the request from running. There are twice as many threads here as concurrent
/// tests.
private let threads = Result { try TaskThreads(named: "fakes", count: 32) }

extension FetcherClient {
    private static let origin = Origin(name: "test", url: "https://origin.test/{profile}")

    /// Starts a download.
    func begin(
        account: UInt32 = 1_000, condition: DownloadCondition? = nil
    ) throws -> (outcome: Awaited<DownloadOutcome>, handle: any DownloadHandle) {
        let outcome = Awaited<DownloadOutcome>()
        let target = DownloadTarget(url: "https://origin.test/bob", isNamedByClient: false)
        let download = Download(
            account: account, origin: Self.origin, target: target, token: Secret("token".utf8), condition: condition,
            framing: .bare)
        return (outcome, try start(download) { outcome.set($0) })
    }

    func refusal() async -> FetchRefusal? {
        let target = DownloadTarget(url: "https://origin.test/bob", isNamedByClient: false)
        return await refusal(
            of: Download(account: 1_000, origin: Self.origin, target: target, token: nil, framing: .bare))
    }

    func beginRefresh() throws -> Awaited<Result<TokenGrant, FetchFailure>> {
        let outcome = Awaited<Result<TokenGrant, FetchFailure>>()
        let request = TokenRequest(
            account: 1_000, origin: Self.origin, endpoint: TokenEndpoint(url: "https://t.test/", clientID: "c"),
            refreshToken: Secret("r".utf8))
        _ = try refresh(request) { outcome.set($0) }
        return outcome
    }
}

/// A value that is set once; a second time fails the test.
final class Awaited<Value: Sendable>: Sendable {
    private let values = NIOLockedValueBox<[Value]>([])
    private let isSet = Semaphore()

    func set(_ value: Value) {
        let count = values.withLockedValue { values in
            values.append(value)
            return values.count
        }
        #expect(count == 1)
        isSet.signal()
    }

    /// Blocks until the value is set.
    func value() throws -> Value {
        isSet.wait()
        return try #require(values.withLockedValue { $0.first })
    }

    var isUnset: Bool { values.withLockedValue(\.isEmpty) }
}

extension DownloadOutcome {
    var failure: FetchFailure? {
        switch self {
        case .failed(let failure), .unusable(let failure, _): failure
        case .image, .missing, .notModified: nil
        }
    }
}
