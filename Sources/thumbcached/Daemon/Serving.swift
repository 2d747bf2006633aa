import DaemonServer
import LinuxSupport
import Logging
import NIOCore
import ThumbcacheProtocol
import ThumbnailCache

/// Serves on the socket until the stop: then answers what has begun, and closes.
struct Serving: Sendable {
    /// How long a stop waits for downloads that somebody waits for.
    private static var grace: TimeAmount { .seconds(5) }
    /// How long it then waits for the last replies to be read, and for their readers to have seen the end.
    private static var lastGrace: TimeAmount { .seconds(2) }

    let socket: DaemonSocket
    let context: ServerContext
    let admins: AdminRule
    /// Stands for every uid that has no number here.
    let overflowUID: UInt32
    let reload: Reload
    let notifier: SystemdNotifier
    let log: Logger

    /// Blocks until nobody is served any more.
    /// - Throws: ``ListenerClosed``; what keeps the server from starting.
    func run(on tasks: TaskThreads) throws {
        let events = DaemonEvents()
        // From here on, so that a signal that comes the moment somebody is served does what it should.
        try events.takeSignals()
        let server = try tasks.wait {
            try await DaemonServer.start(on: socket.descriptor, context: context) {
                try Peer.of($0, admins: admins).refused(asUID: overflowUID)
            }
        }
        server.whenListenerCloses { events.tell(.listenerClosed) }
        attempt("tell systemd that it serves") { try notifier.send(.ready, .status("serving at \(socket.name)")) }
        log.notice("serving", metadata: ["version": "\(Version.current)", "socket": "\(socket.name)"])

        while true {
            switch events.next() {
            case .reload: reload.run()
            case .listenerClosed: throw ListenerClosed(name: socket.name)
            case .stop: return try tasks.wait { try await stop(server) }
            }
        }
    }

    private func stop(_ server: DaemonServer) async throws {
        log.notice("stopping")
        attempt("tell systemd that it stops") { try notifier.send(.stopping) }
        // Nobody finds the socket any more; those who are connected get what is on its way.
        attempt("remove the socket") { try socket.remove() }
        try await server.drain(grace: Self.grace)
        // Who still waits for an origin is told that it will not be.
        await context.sessions.shutDown()
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
