import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

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
