import CacheFakes
import Glibc
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import SocketLoops
import Testing
import ThumbcacheProtocol

@testable import CacheCore
@testable import DaemonServer

/// The real server on a real socket, with fakes for disk, network and clock.
final class TestDaemon: Sendable {
    let path: String
    let store: FakeStore
    let fetcher: FakeFetcher
    let time: ManualTime
    let registry: PeerRegistry
    let budget: MemoryBudget
    let latencies: Latencies
    let server: DaemonServer
    private let sessions: UserSessions
    private let events: EventHub
    let group: SocketLoopGroup
    private let clients = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let peers: NIOLockedValueBox<[Peer]>

    /// The default peer.
    static let defaultPeer = Peer(uid: 1000, pid: 1, isAdmin: false)
    static let admin = Peer(uid: 0, pid: 1, isAdmin: true)
    static let observer = Peer(uid: 1002, pid: 1, isAdmin: false, isObserver: true)

    /// ``FakeWorld/origin`` with a timeout longer than any test: requests wait by the real clock, and must not time out
    /// on a slow machine.
    static let origin: Origin = {
        var origin = FakeWorld.origin
        origin.timeout = 600_000
        return origin
    }()

    /// The configuration of a test daemon.
    struct Setup {
        var limits = ServerLimits()
        var budget = MemoryBudget.Limits()
        var settings = CacheSettings(origins: ["default": TestDaemon.origin])
        var threads = 1
        var memory = 64 << 20
        var info = ServerInfo([:])
        var metrics = ServerMetrics { [] }
        var registry = PeerRegistry()
        var loginThreads = 2
        var tasks: any TaskExecutor = globalConcurrentExecutor
        /// nil: the test sets the peer's rights.
        var admins: AccessRule?
        var observers = AccessRule()
    }

    /// Runs a daemon and a test; checks that the daemon stops and that the store's contract was kept.
    static func run(
        _ configure: (inout Setup) -> Void = { _ in }, _ body: (TestDaemon) async throws -> Void
    ) async throws {
        var setup = Setup()
        configure(&setup)
        let daemon = try await TestDaemon(setup)
        do {
            try await body(daemon)
        } catch {
            try await daemon.stop()
            throw error
        }
        try await daemon.stop()
    }

    private init(_ setup: Setup) async throws {
        let directory = try Self.makeDirectory()
        path = "\(directory)/socket"
        registry = setup.registry
        store = FakeStore()
        fetcher = FakeFetcher(log: store.log)
        time = ManualTime()
        group = try SocketLoopGroup(threads: setup.threads)
        let disk = ThreadPool(threads: 2)
        let settings = setup.settings
        let budgetLimits = setup.budget
        budget = MemoryBudget(limits: { budgetLimits })
        let services = CacheServices(
            store: store, fetcher: fetcher, tokens: FakeTokenEndpoint(), memory: MemoryTier(capacity: setup.memory),
            budget: budget,
            imagePool: disk,
            writes: WriteBehind(writer: disk, time: time, yield: {}, limits: .init(tier: setup.memory)) { false },
            loginPool: ThreadPool(threads: setup.loginThreads),
            invalidationPool: ThreadPool(threads: setup.loginThreads), tasks: setup.tasks, time: time,
            framing: Self.framing,
            counters: CacheCounters(), events: EventHub(), yield: {}, settings: { settings })
        let log = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        sessions = UserSessions(services: services, log: log)
        events = services.events
        let limits = setup.limits
        latencies = Latencies(loops: group.loops.count)
        let context = ServerContext(
            services: services, sessions: sessions,
            invalidationService: InvalidationService(sessions: sessions, log: log),
            info: setup.info, metrics: setup.metrics, latencies: latencies,
            registry: registry, loops: group, limits: { limits }, log: log)
        let peers = NIOLockedValueBox<[Peer]>([])
        self.peers = peers
        let (admins, observers) = (setup.admins, setup.observers)
        server = try await DaemonServer.start(on: try Self.listen(path), context: context) { descriptor in
            if let admins { return try Peer.of(descriptor, admins: admins, observers: observers) }
            return peers.withLockedValue { $0.isEmpty ? Self.defaultPeer : $0.removeFirst() }
        }
    }

    private func stop() async throws {
        try await server.drain(grace: .zero)
        server.close()
        try await clients.shutdownGracefully()
        try await group.shutdownGracefully()
        unlink(path)
        rmdir(String(path.dropLast("/socket".count)))
        #expect(store.violations.isEmpty)
    }

    static let framing = ReplyFraming(
        writePrefix: { ByteBuffer.writeBulkPrefix(count: $0, toEndOf: $1) }, suffix: ByteBuffer.bulkSuffix)

    // MARK: Clients

    /// - Parameter peer: the reported peer. Concurrent connections may get each other's.
    func connect(as peer: Peer = defaultPeer, reads: Bool = true) async throws -> TestClient {
        expect(peer)
        return try await TestClient.connect(to: path, on: clients, reads: reads)
    }

    /// Sets the reported peer of the next connection.
    func expect(_ peer: Peer) { peers.withLockedValue { $0.append(peer) } }

    /// A client with this protocol version, with alice logged in.
    func connectWithAlice(_ version: RESPVersion = .two, as peer: Peer = defaultPeer) async throws -> TestClient {
        let client = try await connect(as: peer)
        if version == .three { _ = try await client.call("HELLO", "3") }
        #expect(try await client.call("LOGIN", "alice") == .simpleString("OK"))
        return client
    }

    /// Completes the latest download of alice's image of a profile.
    func finish(_ profile: String, size: Int = 128, headers: [String: [String]] = [:]) {
        let url = Self.url(profile)
        fetcher.downloads.last { $0.url == url }?.end(
            SampleImage.downloaded(profile, size: size, headers: headers, framing: Self.framing))
    }

    static func url(_ profile: String, user: String = "alice") -> String {
        "https://origin.test/\(user)/\(profile)/128"
    }

    /// Runs work on one of the server's event loops.
    func onEventLoop(_ work: @escaping @Sendable () -> Void) {
        group.next().execute(work)
    }

    /// Whether a user of ``defaultPeer`` has an open cache.
    func isOpen(_ user: String) -> Bool {
        sessions.openCache(Owner(uid: Self.defaultPeer.uid, user: OpaqueID(user))) != nil
    }

    /// Publishes an event of a user of ``defaultPeer``, on the caller's thread.
    func publish(_ kind: UserEvent.Kind, of user: String = "alice", _ epoch: UInt64 = 1) {
        events.publish(
            UserEvent(owner: Owner(uid: Self.defaultPeer.uid, user: OpaqueID(user)), kind: kind, epoch: epoch))
    }

    /// The number of subscribed channels of ``defaultPeer``.
    var followedChannels: Int { events.channelCount(of: Self.defaultPeer.uid) }

    static let alice = Owner(uid: defaultPeer.uid, user: OpaqueID("alice"))

    // MARK: The system

    private static func makeDirectory() throws -> String {
        var template = Array("/tmp/thumbcached-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw IOError(errnoCode: errno, reason: "mkdtemp") }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    private static func listen(_ path: String) throws -> CInt {
        let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw IOError(errnoCode: errno, reason: "socket") }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0, Glibc.listen(descriptor, 4096) == 0 else { throw IOError(errnoCode: errno, reason: "bind") }
        return descriptor
    }
}

/// Polls until the condition holds. Fails after a minute.
func eventually(_ condition: () async throws -> Bool, sourceLocation: SourceLocation = #_sourceLocation) async throws {
    for _ in 0..<60_000 {
        if try await condition() { return }
        try await Task.sleep(for: .milliseconds(1))
    }
    Issue.record("the condition did not hold within a minute", sourceLocation: sourceLocation)
}

func bulk(_ text: String) -> Value { .bulk(ByteBuffer(string: text)) }
func image(_ label: String, size: Int = 128) -> Value { .bulk(SampleImage.png(label, size: size)) }

extension Value {
    /// The code of an error; nil for other replies.
    var code: String? {
        if case .error(let code, _) = self { code } else { nil }
    }

    static let ok = Value.simpleString("OK")
}
