import CDNS
import NIOCore
import SocketLoops

/// One DNS query for SRV records, performed by c-ares on sockets that an event loop watches.
///
/// Each query reads resolv.conf(5) again, and has ports of its own, which an attacker who forges responses would have
/// to guess. Used on the loop only. c-ares keeps a pointer to it until ``close()``.
final class ServiceQuery {
    /// Maximum number of records read from a response. A name server sends them in any order.
    static let maximumRead = 64
    /// Maximum number of records used: those with the lowest priority values.
    static let maximumRecords = 16

    private let loop: SocketLoop
    private let onEnd: (ServiceResponse) -> Void
    private var channel: cdns_channel?
    private var watched: Set<CInt> = []
    private var alarm: LoopTimer?
    private let end: NIODeadline
    private let milliseconds: Int64
    /// The response, until it is reported.
    private var response: ServiceResponse?

    /// - Parameters:
    ///   - nameServers: nil for those of the system.
    ///   - milliseconds: the timeout.
    ///   - onEnd: called once, after ``start(_:)`` has returned, and never after ``close()``.
    init(
        nameServers: String?, milliseconds: Int64, loop: SocketLoop, onEnd: @escaping (ServiceResponse) -> Void
    ) {
        (self.loop, self.onEnd, self.milliseconds) = (loop, onEnd, milliseconds)
        end = .now() + .milliseconds(milliseconds)
        alarm = LoopTimer(loop) { [weak self] in self?.timerFired() }
        let context = Unmanaged.passUnretained(self).toOpaque()
        let code = cdns_open(
            &channel, nameServers, CInt(clamping: milliseconds),
            { context, socket, reads, writes in ServiceQuery.of(context)?.watch(socket, reads != 0, writes != 0) },
            context)
        if code != 0 { (channel, response) = (nil, Self.failure(code)) }
    }

    deinit { close() }

    func start(_ name: String) {
        if let channel {
            cdns_query_srv(
                channel, name,
                { context, code, _, bytes, count in ServiceQuery.of(context)?.received(code, bytes, count) },
                Unmanaged.passUnretained(self).toOpaque())
        }
        // A response that exists already is reported in a later round, after the caller has stored the query.
        alarm?.set(response == nil ? nextDeadline : .now())
    }

    func close() {
        alarm?.set(nil)
        alarm = nil
        guard let channel = channel.take() else { return }
        cdns_close(channel)
    }

    private static func of(_ context: UnsafeMutableRawPointer?) -> ServiceQuery? {
        context.map { Unmanaged<ServiceQuery>.fromOpaque($0).takeUnretainedValue() }
    }

    private func watch(_ socket: CInt, _ reads: Bool, _ writes: Bool) {
        guard reads || writes else {
            if watched.remove(socket) != nil { loop.stopWatching(socket) }
            return
        }
        var events: Readiness = []
        if reads { events.insert(.readable) }
        if writes { events.insert(.writable) }
        do {
            if watched.contains(socket) { return try loop.watch(socket, for: events) }
            try loop.watch(socket, for: events) { [weak self] in self?.ready(socket, $0) }
            watched.insert(socket)
        } catch {
            response = response ?? .busy("cannot watch the socket of a name server: \(error)")
        }
    }

    private func ready(_ socket: CInt, _ events: Readiness) {
        let isGone = !events.isDisjoint(with: .gone)
        process(
            reading: isGone || events.contains(.readable) ? socket : -1,
            writing: events.contains(.writable) ? socket : -1)
    }

    private func timerFired() {
        if NIODeadline.now() >= end, response == nil {
            response = .failed("no name server answered within \(milliseconds) ms")
        }
        process(reading: -1, writing: -1)
    }

    private func process(reading: CInt, writing: CInt) {
        if response == nil, let channel { cdns_process(channel, reading, writing) }
        guard let response else {
            alarm?.set(nextDeadline)
            return
        }
        close()
        onEnd(response)
    }

    private var nextDeadline: NIODeadline {
        guard let channel else { return end }
        let left = cdns_timeout(channel)
        // c-ares rounds milliseconds down.
        return left < 0 ? end : min(end, .now() + .milliseconds(Int64(left) + 1))
    }

    private func received(_ code: CInt, _ bytes: UnsafeMutablePointer<UInt8>?, _ count: CInt) {
        // c-ares also calls back while it is being closed.
        guard channel != nil, response == nil else { return }
        switch cdns_kind(code) {
        case CInt(CDNS_SUCCESS): response = Self.read(bytes, count)
        case CInt(CDNS_NO_RECORDS):
            let read = Self.read(bytes, count)
            // The name has no SRV records; the response may contain other records.
            if case .records(_, let seconds) = read {
                response = .records([], seconds: seconds)
            } else {
                response = read
            }
        default: response = Self.failure(code)
        }
    }

    static func read(_ bytes: UnsafePointer<UInt8>?, _ count: CInt) -> ServiceResponse {
        var seconds = -1
        let found = withUnsafeTemporaryAllocation(of: cdns_srv.self, capacity: maximumRead) { room in
            room.initialize(repeating: cdns_srv())
            let found = cdns_read_srv(bytes, count, room.baseAddress, CInt(maximumRead), &seconds)
            return found < 0 ? nil : room.prefix(Int(found)).map(ServiceRecord.init)
        }
        guard let found else { return .failed("malformed response from the name server") }
        // A record without a host means that there is no such service (RFC 2782).
        let records = found.filter { !$0.host.isEmpty }.sorted { $0.priority < $1.priority }
        return .records(Array(records.prefix(maximumRecords)), seconds: seconds)
    }

    private static func failure(_ code: CInt) -> ServiceResponse {
        guard cdns_kind(code) != CInt(CDNS_NO_MEMORY), !DescriptorShortage.isNow else {
            return .busy("no memory or descriptors for a DNS query; try again later")
        }
        return .failed(String(cString: cdns_error_text(code)))
    }
}

extension ServiceRecord {
    init(_ record: cdns_srv) {
        let host = withUnsafeBytes(of: record.host) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        self.init(
            priority: record.priority, weight: record.weight, port: record.port, host: host == "." ? "" : host)
    }
}
