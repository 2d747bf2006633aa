import CacheCore
import Glibc
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The server on the Unix socket: accepts connections, identifies their peers, and makes a ``Connection`` of each.
public struct DaemonServer: Sendable {
    fileprivate let context: ServerContext
    fileprivate let listener: Listener

    /// Maximum number of refused connections that wait for their peer to read the reason; others close at once.
    public static var maximumRefused: Int { 64 }

    /// Starts serving on a listening socket. Takes ownership of the descriptor.
    /// - Parameter identify: returns the peer, as ``Peer/of(_:admins:observers:)``; called on the connection's loop.
    public static func start(
        on descriptor: CInt, context: ServerContext, identify: @escaping @Sendable (CInt) throws -> Peer
    ) async throws -> DaemonServer {
        let loops = context.loops
        let states = Dictionary(
            uniqueKeysWithValues: zip(loops.loops, context.latencies.recorders).map { loop, latencies in
                (ObjectIdentifier(loop), makeState(of: loop, latencies, context))
            })
        let listener = try await Listener.start(
            on: descriptor, loop: loops.loops[0], log: context.log, next: loops.nextForSocket
        ) { connection, loop in
            accept(connection, context, identify, states[ObjectIdentifier(loop)], on: loop)
        }
        return DaemonServer(context: context, listener: listener)
    }

    /// State shared by the connections of an event loop.
    private struct LoopState {
        let scheduler: LoopScheduler
        let subscribers: LoopSubscribers
    }

    private static func makeState(
        of loop: SocketLoop, _ latencies: LatencyRecorder, _ context: ServerContext
    ) -> NIOLoopBoundBox<LoopState> {
        let scheduler = LoopScheduler(round: loop.round, latencies: latencies) { work in
            let work = NIOLoopBound(work, eventLoop: loop)
            loop.execute { work.value() }
        }
        let subscribers = LoopSubscribers(of: loop, scheduler, context.services.events)
        return NIOLoopBoundBox.makeBoxSendingValue(
            LoopState(scheduler: scheduler, subscribers: subscribers), eventLoop: loop)
    }

    /// Registers a connection, or replies with the reason for its refusal.
    private static func accept(
        _ descriptor: CInt, _ context: ServerContext, _ identify: (CInt) throws -> Peer,
        _ state: NIOLoopBoundBox<LoopState>?, on loop: SocketLoop
    ) {
        do {
            let stream = try loop.adopt(descriptor)
            do {
                guard let state = state?.value else { throw CommandError.stopping }
                let (peer, limits) = (try identify(descriptor), context.limits())
                let onLoop = NIOLoopBound(stream, eventLoop: loop)
                let registration = try context.registry.enter(peer, limits: limits) { signal in
                    // The registry gets this closure before the connection exists.
                    loop.execute { (onLoop.value.handler as? Connection)?.handle(signal) }
                }
                stream.handler = Connection(
                    context: context, limits: limits, peer: peer, registration: registration,
                    scheduler: state.scheduler, subscribers: state.subscribers, stream: stream, eventLoop: loop)
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
            context.log.warning("could not serve a connection", metadata: ["error": "\(error)"])
        }
    }

    /// Calls `body` when the listener closes: after ``drain(grace:)``, or after an error of the socket.
    public func whenListenerCloses(_ body: @escaping @Sendable () -> Void) {
        listener.whenClosed(body)
    }

    /// Stops accepting connections and completes started requests. Returns after the last connection has closed, or
    /// after `grace`; ``close()`` closes the remaining ones. A further call only waits.
    public func drain(grace: TimeAmount) async throws {
        try await listener.stop()
        // Connections accepted before the stop may not have reached their loop yet.
        try await context.loops.barrier()
        let drained = context.loops.next().makePromise(of: Void.self)
        let deadline = drained.futureResult.eventLoop.scheduleTask(in: grace) { drained.succeed() }
        context.registry.drain { drained.succeed() }
        try await drained.futureResult.get()
        deadline.cancel()
    }

    public func close() {
        context.registry.closeAll()
    }
}
