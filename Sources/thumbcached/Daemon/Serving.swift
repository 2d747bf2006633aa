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

/// Serves on the socket until the stop: then answers what has begun, and closes.
struct Serving: Sendable {
    /// How long a stop waits for downloads that somebody waits for.
    private static var grace: TimeAmount { .seconds(5) }
    /// How long it then waits for the last replies to be read, and for their readers to have seen the end.
    private static var lastGrace: TimeAmount { .seconds(2) }

    let socket: DaemonSocket
    let context: ServerContext
    let access: Configuration.Access
    /// The daemon's own user. It can read the store and end the daemon, so it counts as an admin.
    let ownUID: UInt32
    /// Stands for every uid that has no number here.
    let overflowUID: UInt32
    let reload: Reload
    let notifier: SystemdNotifier
    let log: Logger

    /// Blocks until nobody is served any more.
    /// - Throws: ``DaemonError`` when nobody can connect any more; what keeps the server from starting.
    func run(on tasks: TaskThreads) throws {
        let events = DaemonEvents()
        // From here on, so that a signal that comes the moment somebody is served does what it should.
        try events.takeSignals()
        var admins = access.admins
        admins.uids.insert(ownUID)
        let server = try tasks.wait { [admins] in
            try await DaemonServer.start(on: socket.descriptor, context: context) {
                try Peer.of($0, admins: admins, observers: access.observers.rule).refused(asUID: overflowUID)
            }
        }
        server.whenListenerCloses { events.tell(.listenerClosed) }
        log.attempt("could not tell systemd that it serves") {
            try notifier.send(.ready, .status("serving at \(socket.name)"))
        }
        log.notice("serving", metadata: ["version": "\(Version.current)", "socket": "\(socket.name)"])

        while true {
            switch events.next() {
            case .reload:
                let since = UInt64(nanoseconds(of: CLOCK_MONOTONIC)) / 1_000
                log.attempt("could not tell systemd that it reloads") {
                    try notifier.send(.reloading(monotonic: since))
                }
                reload.run()
                log.attempt("could not tell systemd that it serves") { try notifier.send(.ready) }
            case .listenerClosed:
                // The service has failed, for whoever restarts services to see.
                throw DaemonError("the system no longer takes connections at \(socket.name), so the daemon ends")
            case .stop: return try tasks.wait { try await stop(server) }
            }
        }
    }

    private func stop(_ server: DaemonServer) async throws {
        log.notice("stopping")
        log.attempt("could not tell systemd that it stops") { try notifier.send(.stopping) }
        // Nobody finds the socket any more; those who are connected get what is on its way.
        log.attempt("could not remove the socket") { try socket.remove() }
        try await server.drain(grace: Self.grace)
        // Who still waits for an origin is told that it will not be.
        await context.invalidationService.shutDown()
        try await server.drain(grace: Self.lastGrace)
        server.close()
    }
}

/// Reads the configuration again on SIGHUP: limits, origins and the log level take effect at once.
struct Reload: Sendable {
    let load: @Sendable () throws -> Configuration
    let live: LiveConfiguration
    let accounts: LiveAccounts
    let fetcher: FetcherClient
    /// Over the configuration's.
    let logLevel: Logger.Level?
    let log: Logger

    func run() {
        do {
            let new = try load()
            let old = live.withLockedValue { $0 }
            let merged = try DescriptorBudget.fit(new.reloaded(over: old), log: log).configuration
            live.withLockedValue { $0 = merged }
            fetcher.update(merged.fetcher(logLevel: logLevel))
            accounts.read()
            let ignored = new.changesNeedingRestart(from: old)
            if !ignored.isEmpty {
                log.warning(
                    "some changes take effect only after a restart",
                    metadata: ["keys": "\(ignored.joined(separator: ","))"])
            }
            new.logWarnings(log)
            log.notice("configuration read again", metadata: ["file": "\(new.file ?? "none")"])
        } catch {
            log.error("the configuration is not good; the old one stays", metadata: ["reason": "\(error)"])
        }
    }
}

/// What the main thread waits for while the daemon serves. Told twice before it is looked at, it is one event.
final class DaemonEvents: Sendable {
    /// The first in this list goes first.
    enum Event: CaseIterable, Sendable {
        /// SIGTERM or SIGINT.
        case stop
        case listenerClosed
        /// SIGHUP.
        case reload
    }

    private let events = NIOLockedValueBox<Set<Event>>([])
    private let isTold = Semaphore()

    func tell(_ event: Event) { if events.withLockedValue({ $0.insert(event).inserted }) { isTold.signal() } }

    /// Blocks until there is one, and takes it.
    func next() -> Event {
        while true {
            isTold.wait()
            let next = events.withLockedValue { events in
                Event.allCases.first { events.contains($0) }.flatMap { events.remove($0) }
            }
            if let next { return next }
        }
    }

    /// Turns signals into events, on a thread that waits for nothing else: sigwait(3). Until then they end the process.
    ///
    /// Called on the main thread, which is the only one that signals are delivered to (see `startThread`).
    func takeSignals() throws(SystemError) {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, signal) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let thread = try startThread(named: "signals") { [signals] in
            var signals = signals
            while true {
                var signal: CInt = 0
                guard sigwait(&signals, &signal) == 0 else { continue }
                self.tell(signal == SIGHUP ? .reload : .stop)
            }
        }
        pthread_detach(thread)
    }
}
