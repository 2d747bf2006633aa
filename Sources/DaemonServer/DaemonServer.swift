import Glibc
import Logging
import NIOCore
import NIOPosix
import ThumbcacheProtocol

/// The Unix socket: takes connections, asks the kernel who they are, and gives each a ``Connection``.
public final class DaemonServer: Sendable {
    private let dispatcher: Dispatcher
    private let group: any EventLoopGroup
    private let listener: any Channel

    private init(dispatcher: Dispatcher, group: any EventLoopGroup, listener: any Channel) {
        self.dispatcher = dispatcher
        self.group = group
        self.listener = listener
    }

    /// How many connections the kernel may queue before they are accepted.
    private static var backlog: CInt { 4096 }

    /// How many refused connections may linger until their peer has read why. Beyond it they close without waiting.
    public static var refusedAtOnce: Int { 64 }

    /// Starts serving on a bound socket, whoever bound it; the descriptor is the server's from now on.
    /// - Parameter overflowUID: what the kernel says of a peer whose uid has no number in this user namespace
    ///   (user_namespaces(7)). Whoever has it is refused: it may be anybody.
    public static func start(
        on descriptor: CInt, dispatcher: Dispatcher, admins: AdminRule, overflowUID: UInt32 = 65_534,
        group: any EventLoopGroup
    ) async throws -> DaemonServer {
        try await start(
            on: descriptor, dispatcher: dispatcher,
            identify: { try Peer.of($0, admins: admins).refused(asUID: overflowUID) }, group: group)
    }

    /// - Parameter identify: says who is at the other end; called on the channel's event loop.
    static func start(
        on descriptor: CInt, dispatcher: Dispatcher, identify: @escaping @Sendable (any Channel) throws -> Peer,
        group: any EventLoopGroup
    ) async throws -> DaemonServer {
        var dispatcher = dispatcher
        dispatcher.loops = Array(group.makeIterator())
        return try await listen(on: descriptor, dispatcher, identify: identify, group: group)
    }

    private static func listen(
        on descriptor: CInt, _ dispatcher: Dispatcher, identify: @escaping @Sendable (any Channel) throws -> Peer,
        group: any EventLoopGroup
    ) async throws -> DaemonServer {
        // One for each event loop; EventLoopGroup hands out the same loops again and again.
        let rotas = Dictionary(group.makeIterator().map { (ObjectIdentifier($0), Rota(eventLoop: $0)) }) { $1 }
        let listener = try await ServerBootstrap(group: group)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptPause(log: dispatcher.log))
                }
            }
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let loop = channel.eventLoop
                    let rota = rotas[ObjectIdentifier(loop)] ?? Rota(eventLoop: loop)
                    do {
                        try admit(channel, identify(channel), dispatcher, rota)
                    } catch let error as CommandError {
                        try refuse(channel, error, dispatcher.registry)
                    }
                }
            }
            .withBoundSocket(descriptor)
            .get()
        // NIO has called listen with a backlog of 128; to call it again changes only that.
        guard Glibc.listen(descriptor, backlog) == 0 else {
            let error = IOError(errnoCode: errno, reason: "listen on the socket with a backlog of \(backlog)")
            try await listener.close()
            throw error
        }
        return DaemonServer(dispatcher: dispatcher, group: group, listener: listener)
    }

    private static func admit(_ channel: any Channel, _ peer: Peer, _ dispatcher: Dispatcher, _ rota: Rota) throws {
        let limits = dispatcher.limits()
        let loop = channel.eventLoop
        let drain: @Sendable () -> Void = {
            // Looked up by type, since the connection does not exist yet when the registry takes it in.
            loop.execute {
                do {
                    try channel.pipeline.syncOperations.handler(type: Connection.self).drain()
                } catch {
                    channel.close(promise: nil)
                }
            }
        }
        let place: PeerRegistry.Place
        do throws(PeerRegistry.Refusal) {
            place = try dispatcher.registry.enter(
                peer, limits: limits, drain: drain, close: { channel.close(promise: nil) })
        } catch {
            switch error {
            case .tooMany(let reason): throw CommandError(.busy, reason)
            case .draining: throw CommandError.stopping
            }
        }
        // Whatever becomes of the channel, it closes; it may do so without ever having been active.
        let registry = dispatcher.registry
        channel.closeFuture.whenComplete { _ in registry.leave(place.id) }
        // Above the high mark nothing more is started; below the low one the connection carries on.
        let marks = ChannelOptions.Types.WriteBufferWaterMark(
            low: max(1, limits.output / 4), high: max(2, limits.output / 2))
        try channel.syncOptions?.setOption(.writeBufferWaterMark, value: marks)
        let connection = Connection(
            dispatcher: dispatcher, limits: limits, peer: peer, place: place, eventLoop: loop, rota: rota)
        try channel.pipeline.syncOperations.addHandler(connection)
    }

    private static func refuse(_ channel: any Channel, _ error: CommandError, _ registry: PeerRegistry) throws {
        let mayLinger = registry.linger(limit: refusedAtOnce)
        if mayLinger { channel.closeFuture.whenComplete { _ in registry.endLingering() } }
        try channel.pipeline.syncOperations.addHandler(Refusal(error, mayLinger: mayLinger))
    }

    /// Calls `body` when nobody can connect any more: after ``drain(grace:)``, or because the system gave up the socket.
    public func whenListenerCloses(_ body: @escaping @Sendable () -> Void) {
        listener.closeFuture.whenComplete { _ in body() }
    }

    /// Stops taking connections, lets those that there are answer what they have begun, and closes them.
    /// Returns when the last is gone, or after `grace` with the rest still open: ``close()`` ends those.
    public func drain(grace: TimeAmount) async throws {
        do {
            try await listener.close()
        } catch ChannelError.alreadyClosed {
            // An earlier call did, or it ended by itself.
        }
        let drained = group.next().makePromise(of: Void.self)
        let deadline = drained.futureResult.eventLoop.scheduleTask(in: grace) { drained.succeed() }
        dispatcher.registry.drain { drained.succeed() }
        try await drained.futureResult.get()
        deadline.cancel()
    }

    /// Closes what is still open.
    public func close() {
        dispatcher.registry.closeAll()
    }
}
