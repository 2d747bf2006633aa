import CCurl
import FetcherProtocol
import Glibc
import Logging
import NIOCore
import Origins
import SocketLoops
import ThumbnailCache

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
            (uids, needsNudges) = ([transfer?.ticket.entry.uid ?? 0], transfer?.needsNudges == true)
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
                if let transfer { known.uids.insert(transfer.ticket.entry.uid) }
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

// Where a transfer may go, as libcurl asks it: for each socket that it opens, and for each request on a connection.

extension Transfer {
    /// The socket for a connection to `address`, or CURL_SOCKET_BAD for one that must not be reached.
    func socket(for address: UnsafePointer<curl_sockaddr>) -> curl_socket_t {
        lookup.end()
        let family = address.pointee.family
        if origin.proxy.isEmpty {
            // The address reaches beyond the struct that it begins in, whose last field is declared too short for IPv6:
            // so it is read where it lies, never as a copy of that field.
            let field = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
            let ip = IPAddress(field.assumingMemoryBound(to: sockaddr.self), length: Int(address.pointee.addrlen))
            guard let ip, !isRefused(ip) else { return CURL_SOCKET_BAD }
        }
        let socket = Glibc.socket(
            family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
        // A family that this machine does not have is the address's fault; a want of descriptors or memory is ours.
        if socket < 0, errno != EAFNOSUPPORT { lacksSocket = true }
        if socket >= 0 { openedSockets.append(socket) }
        return socket
    }

    /// Whether a request may go out on the connection that libcurl chose. The address of a new one has been judged when
    /// its socket was opened, but one that is used again may have been opened when more was allowed (F58).
    func maySend(on ends: ConnectionTable.Ends) -> Bool {
        if origin.proxy.isEmpty {
            guard let remote = IPAddress(end: ends.remoteAddress) else {
                refusal = "\(asked) is connected to what is no IP address"
                openedSockets = []
                return false
            }
            guard !isRefused(remote, from: IPAddress(end: ends.localAddress)) else {
                openedSockets = []
                return false
            }
        }
        guard sent < Self.mostSent else { return false }
        let isNew = context.connections.add(ends, among: openedSockets)
        // A request is sent once more on a new connection only: all that are open might end like this.
        if isNew || sent == 0 && context.connections.isClean(ends, for: easy) {
            sent += 1
            if let probe = permit, probe.isProbeForAll {
                permit = ticket.scheduler.connected(host, for: ticket.entry.uid, with: probe, at: .now())
            }
            return true
        }
        needsFreshConnection = true
        return false
    }

    /// - Parameter local: the own end's address, once there is a connection.
    func refusalReason(_ address: IPAddress, from local: IPAddress? = nil) -> String? {
        mayBePrivate ? nil : configuration.addressGuard.refusal(ofRemote: address, local: local)
    }

    func deniedSentence(_ address: IPAddress, _ reason: String) -> String {
        let what = "\(asked) is at \(address), \(reason)"
        guard origin.allowPrivateAddresses else {
            return "\(what): the origin's allow-private-addresses would have to permit it"
        }
        return "\(what): allow-private-addresses is for the origin's own scheme, host and port and its allow entries, "
            + "and this is none of them"
    }

    private func isRefused(_ address: IPAddress, from local: IPAddress? = nil) -> Bool {
        guard let reason = refusalReason(address, from: local) else { return false }
        counts[.refusedAddresses] += 1
        refusal = deniedSentence(address, reason)
        return true
    }
}
