import Glibc
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The Unix socket: takes connections, asks the kernel who they are, and gives each a ``Connection``.
public struct DaemonServer: Sendable {
    fileprivate let context: ServerContext
    fileprivate let listener: Listener

    /// How many refused connections may linger until their peer has read why. Beyond it they close without waiting.
    public static var refusedAtOnce: Int { 64 }

    /// Starts serving on a socket that listens, whoever made it; the descriptor is the server's from now on.
    /// - Parameter identify: says who is at the other end, as ``Peer/of(_:admins:observers:)``; called on the
    ///   connection's loop.
    public static func start(
        on descriptor: CInt, context: ServerContext, identify: @escaping @Sendable (CInt) throws -> Peer
    ) async throws -> DaemonServer {
        let loops = context.loops
        let turns = Dictionary(
            uniqueKeysWithValues: zip(loops.loops, context.latencies.recorders).map { loop, latencies in
                (ObjectIdentifier(loop), makeTurns(of: loop, latencies))
            })
        let listener = try await Listener.start(on: descriptor, loop: loops.loops[0], log: context.log) { connection in
            let loop = loops.nextForSocket()
            loop.execute { take(connection, context, identify, turns[ObjectIdentifier(loop)], on: loop) }
        }
        return DaemonServer(context: context, listener: listener)
    }

    private static func makeTurns(of loop: SocketLoop, _ latencies: LatencyRecorder) -> NIOLoopBoundBox<LoopScheduler> {
        NIOLoopBoundBox.makeBoxSendingValue(
            LoopScheduler(round: loop.round, latencies: latencies) { work in
                let work = NIOLoopBound(work, eventLoop: loop)
                loop.execute { work.value() }
            }, eventLoop: loop)
    }

    /// Lets a connection in, or tells it why not.
    private static func take(
        _ descriptor: CInt, _ context: ServerContext, _ identify: (CInt) throws -> Peer,
        _ turns: NIOLoopBoundBox<LoopScheduler>?, on loop: SocketLoop
    ) {
        do {
            let stream = try loop.adopt(descriptor)
            do {
                guard let turns else { throw CommandError.stopping }
                let (peer, limits) = (try identify(descriptor), context.limits())
                let onLoop = NIOLoopBound(stream, eventLoop: loop)
                let registration = try context.registry.enter(peer, limits: limits) { order in
                    // The connection does not exist yet when the registry takes it in.
                    loop.execute { (onLoop.value.handler as? Connection)?.obey(order) }
                }
                stream.handler = Connection(
                    context: context, limits: limits, peer: peer, registration: registration, turns: turns.value,
                    stream: stream, eventLoop: loop)
            } catch let error as CommandError {
                stream.write(.error(error))
                stream.flush()
                stream.endOutput()
                stream.handler = RefusedPeer(stream)
                context.registry.closeSoon(stream, on: loop, after: context.limits().farewell)
            } catch {
                stream.close()
                throw error
            }
        } catch {
            context.log.warning("a connection could not be served", metadata: ["error": "\(error)"])
        }
    }

    /// Calls `body` when nobody can connect any more: after ``drain(grace:)``, or when the system gives up the socket.
    public func whenListenerCloses(_ body: @escaping @Sendable () -> Void) {
        listener.whenClosed(body)
    }

    /// Stops taking connections, lets those that there are answer what they have begun, and closes them.
    /// Returns when the last is gone, or after `grace` with the rest still open: ``close()`` ends those.
    public func drain(grace: TimeAmount) async throws {
        try await listener.stop()
        // Who was let in by an accept(2) before the stop, and has yet to come to its loop, is not too late.
        try await context.loops.barrier()
        let drained = context.loops.next().makePromise(of: Void.self)
        let deadline = drained.futureResult.eventLoop.scheduleTask(in: grace) { drained.succeed() }
        context.registry.drain { drained.succeed() }
        try await drained.futureResult.get()
        deadline.cancel()
    }

    /// Closes what is still open.
    public func close() {
        context.registry.closeAll()
    }
}
