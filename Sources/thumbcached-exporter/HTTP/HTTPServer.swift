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
    private let now: @Sendable () -> NIODeadline

    private init(
        _ channel: any Channel, _ address: SocketAddress, _ table: NIOLoopBound<Table>,
        _ now: @escaping @Sendable () -> NIODeadline
    ) {
        (self.channel, self.address, self.table, self.now) = (channel, address, table, now)
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
            let table = NIOLoopBound(Table(limit: limits.connections), eventLoop: loop)
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
                            limits: limits, now: now, wallClock: wallClock, respond: respond)
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
                    return HTTPServer(channel, bound, table, now)
                }
        }
    }

    /// Ends all waits that have been too long.
    func sweep() -> EventLoopFuture<Void> {
        channel.eventLoop.submit { self.table.value.sweep(at: self.now()) }
    }

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
    private(set) var connections: [ObjectIdentifier: HTTPConnection] = [:]

    init(limit: Int) { self.limit = limit }

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
        channel.closeFuture.assumeIsolated().whenComplete { _ in self.connections[key] = nil }
    }

    func sweep(at now: NIODeadline) {
        for connection in connections.values { connection.endIfOverdue(at: now) }
    }

    func closeAll() {
        for connection in connections.values { connection.giveWay() }
    }
}
