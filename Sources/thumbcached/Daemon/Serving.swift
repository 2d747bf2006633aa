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

/// Reloads the configuration on SIGHUP: applies limits, origins and the log level.
struct Reload: Sendable {
    let load: @Sendable () throws -> Configuration
    let live: LiveConfiguration
    let accounts: LiveAccounts
    let fetcher: FetcherClient
    /// Overrides the configuration's.
    let logLevel: Logger.Level?
    let log: Logger

    func run() {
        do {
            let new = try load()
            let old = live.withLockedValue { $0 }
            let merged = try DescriptorBudget.raiseLimitAndFit(new.reloaded(over: old), log: log).configuration
            live.withLockedValue { $0 = merged }
            fetcher.update(merged.fetcher(logLevel: logLevel))
            accounts.read()
            let ignored = new.changesNeedingRestart(from: old)
            if !ignored.isEmpty {
                log.warning(
                    "configuration changes need a restart",
                    metadata: ["keys": "\(ignored.joined(separator: ","))"])
            }
            new.logWarnings(log)
            log.notice("configuration reloaded", metadata: ["file": "\(new.file ?? "none")"])
        } catch {
            log.error("invalid configuration; the previous one stays in force", metadata: ["reason": "\(error)"])
        }
    }
}

/// Events that the main thread waits for while the daemon serves. Repeated events are merged.
final class DaemonEvents: Sendable {
    /// Pending events are handled in this order.
    enum Event: CaseIterable, Sendable {
        /// SIGTERM or SIGINT.
        case stop
        case listenerClosed
        /// SIGHUP.
        case reload
    }

    private let events = NIOLockedValueBox<Set<Event>>([])
    private let isPending = Semaphore()

    func post(_ event: Event) { if events.withLockedValue({ $0.insert(event).inserted }) { isPending.signal() } }

    /// Blocks until an event is pending, and removes it.
    func next() -> Event {
        while true {
            isPending.wait()
            let next = events.withLockedValue { events in
                Event.allCases.first { events.contains($0) }.flatMap { events.remove($0) }
            }
            if let next { return next }
        }
    }

    /// Starts a thread that turns signals into events with sigwait(3). Must be called on the main thread, the only one
    /// that receives signals (see `startThread`).
    func handleSignals() throws(SystemError) {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, signal) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let thread = try startThread(named: "signals") { [signals] in
            var signals = signals
            while true {
                var signal: CInt = 0
                guard sigwait(&signals, &signal) == 0 else { continue }
                self.post(signal == SIGHUP ? .reload : .stop)
            }
        }
        pthread_detach(thread)
    }
}
