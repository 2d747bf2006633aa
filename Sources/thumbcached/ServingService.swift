import DaemonServer
import Logging
import NIOCore
import ServiceLifecycle
import SocketLoops
import ThumbnailCache

/// Serves on the socket until the stop: then answers what has begun, and closes.
struct ServingService: Service {
    /// How long a stop waits for downloads that somebody waits for.
    private static var grace: TimeAmount { .seconds(5) }
    /// How long it then waits for the last replies to be read.
    private static var lastGrace: TimeAmount { .seconds(1) }

    let socket: DaemonSocket
    let dispatcher: Dispatcher
    let admins: AdminRule
    /// Stands for every uid that has no number here.
    let overflowUID: UInt32
    let group: SocketLoopGroup
    let notifier: SystemdNotifier
    let log: Logger

    func run() async throws {
        let server = try await DaemonServer.start(
            on: socket.descriptor, dispatcher: dispatcher, admins: admins, overflowUID: overflowUID, group: group)
        attempt("tell systemd that it serves") { try notifier.send(.ready, .status("serving at \(socket.name)")) }
        log.notice("serving", metadata: ["version": "\(dispatcher.version)", "socket": "\(socket.name)"])

        let listening = AsyncStream<Void> { ends in
            server.whenListenerCloses {
                ends.yield()
                ends.finish()
            }
        }
        for await _ in listening.cancelOnGracefulShutdown() { throw ListenerClosed(name: socket.name) }
        log.notice("stopping")
        attempt("tell systemd that it stops") { try notifier.send(.stopping) }
        // Nobody finds the socket any more; those who are connected get what is on its way.
        attempt("remove the socket") { try socket.remove() }
        try await server.drain(grace: Self.grace)
        // Who still waits for an origin is told that it will not be.
        await dispatcher.sessions.shutDown()
        try await server.drain(grace: Self.lastGrace)
        server.close()
    }

    /// What fails here is told, and stops neither the serving nor the stop.
    private func attempt(_ what: String, _ body: () throws -> Void) {
        do {
            try body()
        } catch {
            log.warning("could not \(what)", metadata: ["reason": "\(error)"])
        }
    }
}

/// Nobody can connect any more: the service has failed, for whoever restarts services to see.
struct ListenerClosed: Error, CustomStringConvertible {
    let name: String

    var description: String { "the system no longer takes connections at \(name), so the daemon ends" }
}
