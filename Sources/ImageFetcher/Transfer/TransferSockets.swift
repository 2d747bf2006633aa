import CCurl
import Logging
import NIOCore
import SocketLoops

/// The sockets and the one timer that libcurl wants to be told of, watched by an event loop: libcurl-multi(3), "multi_socket".
///
/// Only the fetcher's thread touches it. libcurl keeps a pointer to it: it lives for as long as the multi handle.
final class TransferSockets {
    /// A socket that libcurl waits for.
    final class Watched {
        let descriptor: curl_socket_t
        /// Whose transfer libcurl named last.
        fileprivate(set) var uid: UInt32
        /// What it is ready for and libcurl has not been told.
        private var found: Readiness = []
        private let becameReady: (Watched) -> Void
        fileprivate(set) var isWatched = true

        fileprivate init(_ descriptor: curl_socket_t, uid: UInt32, becameReady: @escaping (Watched) -> Void) {
            (self.descriptor, self.uid, self.becameReady) = (descriptor, uid, becameReady)
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
        _ = ccurl_multi_set_socket_function(multi, { easy, socket, what, context, _ in
            TransferSockets.of(context)?.watch(socket, for: what, easy: easy)
            return 0
        }, context)
        _ = ccurl_multi_set_timer_function(multi, { _, milliseconds, context in
            TransferSockets.of(context)?.deadline = milliseconds < 0 ? nil : .now() + .milliseconds(Int64(milliseconds))
            return 0
        }, context)
    }

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
        let uid = Transfer.of(easy)?.ticket.entry.uid
        do {
            if let known = watched[socket] {
                known.uid = uid ?? known.uid
                try loop.watch(socket, for: events)
            } else {
                let new = Watched(socket, uid: uid ?? 0, becameReady: becameReady)
                try loop.watch(socket, for: events, new.ready)
                watched[socket] = new
            }
        } catch {
            // To tell libcurl would end every transfer, of everybody. This one ends when its time is up.
            log.error("the socket of a download cannot be watched", metadata: ["error": "\(error)"])
        }
    }
}
