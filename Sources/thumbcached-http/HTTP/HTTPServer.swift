import NIOCore
import NIOHTTP1
import NIOPosix
import ProgramSupport

/// An HTTP/1.1 server: accepts connections and enforces their number and timeouts.
final class HTTPServer: Sendable {
    typealias Handler = @Sendable (HTTPRequestHead) -> HTTPConnection.Responder

    /// The bound address, with the port that the kernel chose for port 0.
    let address: SocketAddress
    private let channel: any Channel
    /// The Unix socket that this server created.
    private let socket: ListeningSocket?
    private let table: NIOLoopBound<Table>

    private init(
        _ channel: any Channel, _ socket: ListeningSocket?, _ address: SocketAddress, _ table: NIOLoopBound<Table>
    ) {
        (self.channel, self.socket, self.address, self.table) = (channel, socket, address, table)
    }

    /// Starts a server whose listener and connections use `loop`; `wallClock` gives seconds since 1970, for the field
    /// Date, and `respond` is called on the loop for each request. A Unix socket gets the mode 0660, so that its group,
    /// such as a proxy, can connect; errors of its path name `setting`.
    static func start(
        on loop: any EventLoop, at place: ListeningPlace, setting: String, limits: HTTPLimits,
        now: @escaping @Sendable () -> NIODeadline, wallClock: @escaping @Sendable () -> Int64,
        respond: @escaping Handler
    ) -> EventLoopFuture<HTTPServer> {
        loop.flatSubmit {
            let table = NIOLoopBound(Table(limit: limits.connections, loop: loop, now: now), eventLoop: loop)
            let bootstrap = ServerBootstrap(group: loop)
                .serverChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        // Pauses accepting while descriptors have run out.
                        try channel.pipeline.syncOperations.addHandler(AcceptBackoffHandler())
                    }
                }
                .serverChannelOption(.backlog, value: 128)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                .childChannelOption(.autoRead, value: false)
                .childChannelOption(.allowRemoteHalfClosure, value: true)
                .childChannelOption(.maxMessagesPerRead, value: 1)
                .childChannelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 4 << 10))
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        let connection = HTTPConnection(
                            limits: limits, now: now, wallClock: wallClock,
                            timeoutChanged: { table.value.sweepNoLater(than: $0) }, respond: respond)
                        let pipeline = channel.pipeline.syncOperations
                        try pipeline.addHandler(HTTPResponseEncoder())
                        try pipeline.addHandler(limits.makeDecoder())
                        try pipeline.addHandler(connection)
                        table.value.add(connection, channel)
                    }
                }
            let bound: EventLoopFuture<any Channel>
            var own: ListeningSocket?
            switch place {
            case .passed(let descriptor, _): bound = bootstrap.withBoundSocket(descriptor)
            // The host is a literal address, so nothing is resolved.
            case .address(.tcp(let host, let port)): bound = bootstrap.bind(host: host.text, port: port)
            case .address(.unix(let path)):
                do throws(ListeningSocket.Failure) {
                    let socket = try ListeningSocket(path: path, mode: 0o660, setting: setting)
                    (own, bound) = (socket, bootstrap.withBoundSocket(socket.descriptor))
                } catch {
                    return loop.makeFailedFuture(error)
                }
            }
            return bound.flatMapThrowing { [own] channel in
                guard let address = channel.localAddress else { throw ChannelError.unknownLocalAddress }
                return HTTPServer(channel, own, address, table)
            }
        }
    }

    /// Closes connections whose timeout expired. A timer does so as well.
    func sweep() -> EventLoopFuture<Void> {
        channel.eventLoop.submit { self.table.value.sweep() }
    }

    func hasTimer() -> EventLoopFuture<Bool> { channel.eventLoop.submit { self.table.value.hasTimer } }

    func phases() -> EventLoopFuture<[HTTPConnection.Phase]> {
        channel.eventLoop.submit { self.table.value.connections.values.map(\.phase) }
    }

    var closed: EventLoopFuture<Void> { channel.closeFuture }

    func close() -> EventLoopFuture<Void> {
        channel.eventLoop.submit { self.table.value.closeAll() }.flatMap { self.channel.close() }
            .flatMapThrowing { try self.socket?.remove() }
    }
}

/// The connections, confined to their event loop.
private final class Table {
    let limit: Int
    private let loop: any EventLoop
    private let now: () -> NIODeadline
    private(set) var connections: [ObjectIdentifier: HTTPConnection] = [:]
    /// The next sweep: at the earliest timeout, or before it. nil without connections.
    private var timer: (due: NIODeadline, task: Scheduled<Void>)?

    init(limit: Int, loop: any EventLoop, now: @escaping () -> NIODeadline) {
        (self.limit, self.loop, self.now) = (limit, loop, now)
    }

    var hasTimer: Bool { timer != nil }

    func sweepNoLater(than due: NIODeadline) {
        if let timer, timer.due <= due { return }
        timer?.task.cancel()
        let delay = max(due - now(), .zero)
        timer = (due, loop.assumeIsolated().scheduleTask(in: delay) { self.sweep() })
    }

    /// Adds a connection. At the limit, evicts the longest idle one, or closes the new one if none is idle.
    func add(_ connection: HTTPConnection, _ channel: any Channel) {
        let key = ObjectIdentifier(connection)
        if connections.count >= limit {
            let idlest = connections.filter(\.value.isEvictable).min { $0.value.since < $1.value.since }
            guard let idlest else { return channel.close(promise: nil) }
            connections[idlest.key] = nil
            idlest.value.close()
        }
        connections[key] = connection
        sweepNoLater(than: connection.due)
        channel.closeFuture.assumeIsolated().whenComplete { _ in
            self.connections[key] = nil
            if self.connections.isEmpty { self.stopTimer() }
        }
    }

    func sweep() {
        stopTimer()
        for connection in connections.values { connection.timeOut(at: now()) }
        if let due = connections.values.map(\.due).min() { sweepNoLater(than: due) }
    }

    private func stopTimer() {
        timer?.task.cancel()
        timer = nil
    }

    func closeAll() {
        for connection in connections.values { connection.close() }
    }
}
