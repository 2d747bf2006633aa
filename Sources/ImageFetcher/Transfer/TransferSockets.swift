import CCurl
import Logging
import NIOCore
import SocketLoops

/// The sockets and the one timer that libcurl wants to be told of, watched by an event loop: libcurl-multi(3),
/// "multi_socket".
///
/// Only the fetcher's thread touches it. libcurl keeps a pointer to it: it lives for as long as the multi handle.
final class TransferSockets {
    /// A socket that libcurl waits for.
    final class Watched {
        let descriptor: curl_socket_t
        /// Whose transfers it serves; several where they share a connection over HTTP/2. libcurl tells who joins, and
        /// not who leaves.
        fileprivate(set) var uids: Set<UInt32>
        /// Whether it serves a transfer that may stand still: see ``Transfer/needsNudges``.
        fileprivate(set) var needsNudges: Bool
        /// What it is ready for and libcurl has not been told.
        private var found: Readiness = []
        private let becameReady: (Watched) -> Void
        fileprivate(set) var isWatched = true

        fileprivate init(_ descriptor: curl_socket_t, for transfer: Transfer?, becameReady: @escaping (Watched) -> Void)
        {
            (self.descriptor, self.becameReady) = (descriptor, becameReady)
            (uids, needsNudges) = ([transfer?.handle.entry.uid ?? 0], transfer?.needsNudges == true)
        }

        /// The loop finds it ready in each round until libcurl has been told.
        fileprivate func ready(_ events: Readiness) {
            let isFirst = found.isEmpty
            found.formUnion(events)
            if isFirst { becameReady(self) }
        }

        /// What libcurl is to be told now.
        func takeFound() -> Int32 {
            defer { found = [] }
            var events: Int32 = 0
            if found.contains(.readable) { events |= CURL_CSELECT_IN }
            if found.contains(.writable) { events |= CURL_CSELECT_OUT }
            if !found.isDisjoint(with: .gone) { events |= CURL_CSELECT_ERR }
            return events
        }
    }

    /// When libcurl wants to be called, whatever the sockets do; nil while it does not.
    private(set) var deadline: NIODeadline?
    private var watched: [curl_socket_t: Watched] = [:]
    private let loop: SocketLoop
    private let log: Logger
    private let becameReady: (Watched) -> Void

    /// - Parameter becameReady: called on the loop when there is something to tell libcurl of a socket.
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
        // libcurl rounds down.
        default: deadline = .now() + .milliseconds(Int64(milliseconds) + 1)
        }
    }

    /// libcurl is about to be called for what is due. It says when it wants to be called next, if ever; also when by
    /// its own clock it was called too early.
    func willCallForTimer() { deadline = nil }

    /// libcurl failed, and may not have said when it wants to be called.
    func callAgainSoon() { if deadline == nil { deadline = .now() + .milliseconds(10) } }

    private static func of(_ context: UnsafeMutableRawPointer?) -> TransferSockets? {
        context.map { Unmanaged<TransferSockets>.fromOpaque($0).takeUnretainedValue() }
    }

    /// All that are watched at this moment.
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
                if let transfer { known.uids.insert(transfer.handle.entry.uid) }
                try loop.watch(socket, for: events)
            } else {
                let new = Watched(socket, for: transfer, becameReady: becameReady)
                try loop.watch(socket, for: events, new.ready)
                watched[socket] = new
            }
        } catch {
            // To tell libcurl would end every transfer, of everybody. This one ends when its time is up, which is no
            // fault of the host's.
            transfer?.lacksSocket = true
            transfer?.openedSockets = []
            log.error("the socket of a download cannot be watched", metadata: ["error": "\(error)"])
        }
    }
}
