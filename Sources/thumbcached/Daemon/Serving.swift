import CacheCore
import DaemonServer
import DiskStore
import Glibc
import HelperClient
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import ThumbcacheProtocol

/// Serves clients until a stop, then completes the requests that have begun.
struct Serving: Sendable {
    /// Time that a stop waits for downloads with waiters.
    private static var grace: TimeAmount { .seconds(5) }
    /// Time that a stop then waits for clients to read their last replies.
    private static var lastGrace: TimeAmount { .seconds(2) }

    let socket: DaemonSocket
    let context: ServerContext
    let access: Configuration.Access
    /// The daemon's uid. Always an admin: its processes can read the store and signal the daemon.
    let ownUID: UInt32
    let overflowUID: UInt32
    let reload: Reload
    let notifier: SystemdNotifier
    let log: Logger

    /// Blocks until the daemon has stopped. Throws if the listening socket fails, or the server cannot start.
    func run(on tasks: TaskThreads) throws {
        let events = DaemonEvents()
        // Before the first client is served, so that no signal is lost.
        try events.handleSignals()
        var admins = access.admins
        admins.uids.insert(ownUID)
        let server = try tasks.wait { [admins] in
            try await DaemonServer.start(on: socket.descriptor, context: context) {
                try Peer.of($0, admins: admins, observers: access.observers.rule)
                    .rejectingUnmapped(overflowUID: overflowUID)
            }
        }
        server.whenListenerCloses { events.post(.listenerClosed) }
        log.onFailure("systemd not notified of readiness") {
            try notifier.send(.ready, .status("serving at \(socket.name)"))
        }
        log.notice("serving", metadata: ["version": "\(Version.current)", "socket": "\(socket.name)"])

        while true {
            switch events.next() {
            case .reload:
                let since = UInt64(nanoseconds(of: CLOCK_MONOTONIC)) / 1_000
                log.onFailure("systemd not notified of a reload") {
                    try notifier.send(.reloading(monotonic: since))
                }
                reload.run()
                log.onFailure("systemd not notified of readiness") { try notifier.send(.ready) }
            case .listenerClosed:
                // Ends the process without a stop: clients are disconnected, and queued images are not written. The
                // exit status is a failure, so that systemd restarts the service.
                throw DaemonError("cannot accept connections at \(socket.name) any more")
            case .stop: return try tasks.wait { try await stop(server) }
            }
        }
    }

    private func stop(_ server: DaemonServer) async throws {
        log.notice("stopping")
        log.onFailure("systemd not notified of the stop") { try notifier.send(.stopping) }
        // New clients cannot connect; connected ones get the replies to requests that have begun.
        log.onFailure("socket not removed") { try socket.remove() }
        try await server.drain(grace: Self.grace)
        // Writes the queued images, and fails requests that still wait for an origin.
        await context.invalidationService.shutDown()
        // Waits for clients to read the replies.
        try await server.drain(grace: Self.lastGrace)
        server.close()
    }
}
