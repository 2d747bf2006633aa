import NIOCore
import NIOHTTP1
import NIOPosix

/// Listens, and knows all connections: how many there are, and which of them wait too long.
final class HTTPServer: Sendable {
    typealias Handler = @Sendable (HTTPRequestHead) -> HTTPConnection.Responder

    /// Where it listens.
    let address: SocketAddress
    private let channel: any Channel
    private let table: NIOLoopBound<Table>

    private init(_ channel: any Channel, _ address: SocketAddress, _ table: NIOLoopBound<Table>) {
        (self.channel, self.address, self.table) = (channel, address, table)
    }

    /// - Parameters:
    ///   - loop: of the listener and of all connections.
    ///   - now: what waits are measured by.
    ///   - wallClock: seconds since 1970.
    ///   - respond: called on the loop.
    static func start(
        on loop: any EventLoop, at address: SocketAddress, limits: HTTPLimits,
        now: @escaping @Sendable () -> NIODeadline, wallClock: @escaping @Sendable () -> Int64,
        respond: @escaping Handler
    ) -> EventLoopFuture<HTTPServer> {
        loop.flatSubmit {
            let table = NIOLoopBound(Table(limit: limits.connections, loop: loop, now: now), eventLoop: loop)
            return ServerBootstrap(group: loop)
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
                            waits: { table.value.sweepNoLater(than: $0) }, respond: respond)
                        let pipeline = channel.pipeline.syncOperations
                        try pipeline.addHandler(HTTPResponseEncoder())
                        try pipeline.addHandler(
                            ByteToMessageHandler(
                                HTTPRequestDecoder(
                                    leftOverBytesStrategy: .dropBytes, limitConfiguration: limits.decoder)))
                        try pipeline.addHandler(connection)
                        table.value.enter(connection, channel)
                    }
                }
                .bind(to: address)
                .flatMapThrowing { channel in
                    guard let bound = channel.localAddress else { throw ChannelError.unknownLocalAddress }
                    return HTTPServer(channel, bound, table)
                }
        }
    }

    /// Ends all waits that have been too long. The server does so by itself when one is.
    func sweep() -> EventLoopFuture<Void> {
        channel.eventLoop.submit { self.table.value.sweep() }
    }

    /// Whether a timer waits for a sweep.
    func hasTimer() -> EventLoopFuture<Bool> { channel.eventLoop.submit { self.table.value.hasTimer } }

    /// What its connections wait for.
    func phases() -> EventLoopFuture<[HTTPConnection.Phase]> {
        channel.eventLoop.submit { self.table.value.connections.values.map(\.phase) }
    }

    /// Ends when the listener does, which nobody asks for but ``close()``.
    var closed: EventLoopFuture<Void> { channel.closeFuture }

    /// Closes the listener and all connections.
    func close() -> EventLoopFuture<Void> {
        channel.eventLoop.submit { self.table.value.closeAll() }.flatMap { self.channel.close() }
    }
}

/// The connections, on their loop.
private final class Table {
    let limit: Int
    private let loop: any EventLoop
    private let now: () -> NIODeadline
    private(set) var connections: [ObjectIdentifier: HTTPConnection] = [:]
    /// Ends the wait that is too long first, or an earlier one that has ended since. None without connections.
    private var timer: (due: NIODeadline, task: Scheduled<Void>)?

    init(limit: Int, loop: any EventLoop, now: @escaping () -> NIODeadline) {
        (self.limit, self.loop, self.now) = (limit, loop, now)
    }

    var hasTimer: Bool { timer != nil }

    func sweepNoLater(than due: NIODeadline) {
        if let timer, timer.due <= due { return }
        timer?.task.cancel()
        // By the clock that waits are measured by.
        let delay = max(due - now(), .zero)
        timer = (due, loop.assumeIsolated().scheduleTask(in: delay) { self.sweep() })
    }

    /// Takes a connection in, for another one where all are taken. If all of these are being answered, it is closed.
    func enter(_ connection: HTTPConnection, _ channel: any Channel) {
        let key = ObjectIdentifier(connection)
        if connections.count >= limit {
            let silent = connections.filter { $0.value.canGiveWay }.min { $0.value.since < $1.value.since }
            guard let silent else { return channel.close(promise: nil) }
            connections[silent.key] = nil
            silent.value.giveWay()
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
        for connection in connections.values { connection.endIfOverdue(at: now()) }
        if let due = connections.values.map(\.due).min() { sweepNoLater(than: due) }
    }

    private func stopTimer() {
        timer?.task.cancel()
        timer = nil
    }

    func closeAll() {
        for connection in connections.values { connection.giveWay() }
    }
}
