import CCurl
import Logging
import NIOCore
import SocketLoops

/// Watches libcurl's sockets and its timer on an event loop: libcurl-multi(3), "multi_socket".
///
/// Used on the fetcher's thread only. libcurl keeps a pointer to it, so it must outlive the multi handle.
final class TransferSockets {
    /// A socket that libcurl waits for.
    final class Watched {
        let descriptor: curl_socket_t
        /// The accounts of its transfers; several if they share an HTTP/2 connection. Transfers that have left remain.
        fileprivate(set) var accounts: Set<UInt32>
        /// Whether one of its transfers may stall: see ``Transfer/needsPolling``.
        fileprivate(set) var needsPolling: Bool
        /// Events that libcurl has not been given yet.
        private var events: Readiness = []
        private let becameReady: (Watched) -> Void
        fileprivate(set) var isWatched = true

        fileprivate init(_ descriptor: curl_socket_t, for transfer: Transfer?, becameReady: @escaping (Watched) -> Void)
        {
            (self.descriptor, self.becameReady) = (descriptor, becameReady)
            (accounts, needsPolling) = ([transfer?.handle.entry.account ?? 0], transfer?.needsPolling == true)
        }

        /// Called in each round of the loop while the socket is ready.
        fileprivate func ready(_ newEvents: Readiness) {
            let isFirst = events.isEmpty
            events.formUnion(newEvents)
            if isFirst { becameReady(self) }
        }

        /// Removes and returns the pending events, for libcurl.
        func removeEvents() -> Int32 {
            defer { events = [] }
            var bits: Int32 = 0
            if events.contains(.readable) { bits |= CURL_CSELECT_IN }
            if events.contains(.writable) { bits |= CURL_CSELECT_OUT }
            if !events.isDisjoint(with: .gone) { bits |= CURL_CSELECT_ERR }
            return bits
        }
    }

    /// When libcurl must be called even if no socket is ready; nil if never.
    private(set) var deadline: NIODeadline?
    private var watched: [curl_socket_t: Watched] = [:]
    private let loop: SocketLoop
    private let log: Logger
    private let becameReady: (Watched) -> Void

    /// - Parameter becameReady: called on the loop when a socket has its first pending event.
    init(
        of multi: UnsafeMutableRawPointer, loop: SocketLoop, log: Logger, becameReady: @escaping (Watched) -> Void
    ) {
        (self.loop, self.log, self.becameReady) = (loop, log, becameReady)
        let context = Unmanaged.passUnretained(self).toOpaque()
        _ = ccurl_multi_set_socket_function(
            multi,
            { easy, socket, what, context, _ in
                TransferSockets.of(context)?.watch(socket, for: what, easy: easy)
                return 0
            }, context)
        _ = ccurl_multi_set_timer_function(
            multi,
            { _, milliseconds, context in
                TransferSockets.of(context)?.setTimer(milliseconds)
                return 0
            }, context)
    }

    private func setTimer(_ milliseconds: Int) {
        switch milliseconds {
        case ..<0: deadline = nil
        case 0: deadline = .now()
        // libcurl rounds milliseconds down.
        default: deadline = .now() + .milliseconds(Int64(milliseconds) + 1)
        }
    }

    /// Call it before calling libcurl for its timer; libcurl then sets the next deadline.
    func clearDeadline() { deadline = nil }

    /// Sets a deadline after libcurl failed without setting one.
    func retrySoon() { if deadline == nil { deadline = .now() + .milliseconds(10) } }

    private static func of(_ context: UnsafeMutableRawPointer?) -> TransferSockets? {
        context.map { Unmanaged<TransferSockets>.fromOpaque($0).takeUnretainedValue() }
    }

    var all: [Watched] { Array(watched.values) }

    private func watch(_ socket: curl_socket_t, for what: Int32, easy: UnsafeMutableRawPointer?) {
        guard what != CURL_POLL_REMOVE else {
            watched.removeValue(forKey: socket)?.isWatched = false
            return loop.stopWatching(socket)
        }
        var events: Readiness = []
        if what & CURL_POLL_IN != 0 { events.insert(.readable) }
        if what & CURL_POLL_OUT != 0 { events.insert(.writable) }
        let transfer = Transfer.of(easy)
        do {
            if let known = watched[socket] {
                if let transfer { known.accounts.insert(transfer.handle.entry.account) }
                try loop.watch(socket, for: events)
            } else {
                let new = Watched(socket, for: transfer, becameReady: becameReady)
                try loop.watch(socket, for: events, new.ready)
                watched[socket] = new
            }
        } catch {
            // An error of the callback would end all transfers. Only this one times out, and its host is not blamed.
            transfer?.lacksSocket = true
            transfer?.openedSockets = []
            log.error("cannot watch the socket of a download", metadata: ["error": "\(error)"])
        }
    }
}
