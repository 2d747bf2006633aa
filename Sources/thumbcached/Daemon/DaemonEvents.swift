import Glibc
import LinuxSupport
import NIOConcurrencyHelpers

/// What the main thread waits for while the daemon serves. However often something is told before it is looked at, it is one event.
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

    func tell(_ event: Event) {
        if events.withLockedValue({ $0.insert(event).inserted }) { isTold.signal() }
    }

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

    // MARK: Signals

    /// Turns signals into events from now on, on a thread that waits for nothing else: sigwait(3). Until then they end the process.
    ///
    /// Called on the main thread, which is the only one that signals are delivered to (see `startThread`).
    func takeSignals() throws(ThreadError) {
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
