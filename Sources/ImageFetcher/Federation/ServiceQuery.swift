import CDNS
import NIOCore
import SocketLoops

/// One question for SRV records, sent and received by c-ares, whose sockets an event loop watches. It reads
/// resolv.conf(5) anew, so that it asks whom the machine asks at this moment, and has ports of its own, which whoever
/// forges answers would have to guess.
///
/// Used on the loop alone. c-ares keeps a pointer to it until ``close()``.
final class ServiceQuery {
    /// Records of an answer that are read. The name server has them in any order.
    static let mostRead = 64
    /// Of these, those that are looked at: of the lowest priorities.
    static let mostRecords = 16

    private let loop: SocketLoop
    private let onEnd: (ServiceAnswer) -> Void
    private var channel: cdns_channel?
    private var watched: Set<CInt> = []
    private var alarm: LoopTimer?
    private let end: NIODeadline
    private let milliseconds: Int64
    /// What came of it, until it is told.
    private var answer: ServiceAnswer?

    /// - Parameters:
    ///   - nameServers: nil for those of the system.
    ///   - milliseconds: that it takes at most.
    ///   - onEnd: called once, not before ``start(_:)`` has returned, and never after ``close()``.
    init(
        nameServers: String?, milliseconds: Int64, loop: SocketLoop, onEnd: @escaping (ServiceAnswer) -> Void
    ) {
        (self.loop, self.onEnd, self.milliseconds) = (loop, onEnd, milliseconds)
        end = .now() + .milliseconds(milliseconds)
        alarm = LoopTimer(loop) { [weak self] in self?.timeIsUp() }
        let context = Unmanaged.passUnretained(self).toOpaque()
        let code = cdns_open(
            &channel, nameServers, CInt(clamping: milliseconds),
            { context, socket, reads, writes in ServiceQuery.of(context)?.watch(socket, reads != 0, writes != 0) },
            context)
        if code != 0 { (channel, answer) = (nil, Self.failure(code)) }
    }

    deinit { close() }

    func start(_ name: String) {
        if let channel {
            cdns_ask_srv(
                channel, name,
                { context, code, _, bytes, count in ServiceQuery.of(context)?.answered(code, bytes, count) },
                Unmanaged.passUnretained(self).toOpaque())
        }
        // What has ended already is told in a later round: whoever starts it has yet to note it.
        alarm?.set(answer == nil ? nextDeadline : .now())
    }

    /// Nothing is told any more.
    func close() {
        alarm?.set(nil)
        alarm = nil
        guard let channel = channel.take() else { return }
        cdns_close(channel)
    }

    private static func of(_ context: UnsafeMutableRawPointer?) -> ServiceQuery? {
        context.map { Unmanaged<ServiceQuery>.fromOpaque($0).takeUnretainedValue() }
    }

    // MARK: Sockets and time

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
            answer = answer ?? .busy("no name server can be listened to: \(error)")
        }
    }

    private func ready(_ socket: CInt, _ events: Readiness) {
        // A socket that is broken is for c-ares to find broken.
        let isGone = !events.isDisjoint(with: .gone)
        process(
            reading: isGone || events.contains(.readable) ? socket : -1,
            writing: events.contains(.writable) ? socket : -1)
    }

    private func timeIsUp() {
        if NIODeadline.now() >= end, answer == nil {
            answer = .failed("no name server answered within \(milliseconds) ms")
        }
        process(reading: -1, writing: -1)
    }

    private func process(reading: CInt, writing: CInt) {
        if answer == nil, let channel { cdns_process(channel, reading, writing) }
        guard let answer else {
            alarm?.set(nextDeadline)
            return
        }
        close()
        onEnd(answer)
    }

    private var nextDeadline: NIODeadline {
        guard let channel else { return end }
        let left = cdns_timeout(channel)
        // c-ares's milliseconds are rounded down.
        return left < 0 ? end : min(end, .now() + .milliseconds(Int64(left) + 1))
    }

    // MARK: The answer

    private func answered(_ code: CInt, _ bytes: UnsafeMutablePointer<UInt8>?, _ count: CInt) {
        // It is being closed.
        guard channel != nil, answer == nil else { return }
        switch cdns_meaning(code) {
        case CInt(CDNS_ANSWERED): answer = Self.read(bytes, count)
        case CInt(CDNS_NO_RECORDS):
            let read = Self.read(bytes, count)
            // Of such a name there are none, whatever is with it.
            if case .records(_, let seconds) = read { answer = .records([], seconds: seconds) } else { answer = read }
        default: answer = Self.failure(code)
        }
    }

    static func read(_ bytes: UnsafePointer<UInt8>?, _ count: CInt) -> ServiceAnswer {
        var seconds = -1
        let found = withUnsafeTemporaryAllocation(of: cdns_srv.self, capacity: mostRead) { room in
            room.initialize(repeating: cdns_srv())
            let found = cdns_read_srv(bytes, count, room.baseAddress, CInt(mostRead), &seconds)
            return found < 0 ? nil : room.prefix(Int(found)).map(ServiceRecord.init)
        }
        guard let found else { return .failed("what a name server said is no answer") }
        // One that says that there is no such service says so alone (RFC 2782).
        let records = found.filter { !$0.host.isEmpty }.sorted { $0.priority < $1.priority }
        return .records(Array(records.prefix(mostRecords)), seconds: seconds)
    }

    private static func failure(_ code: CInt) -> ServiceAnswer {
        guard cdns_meaning(code) != CInt(CDNS_NO_MEMORY), !DescriptorShortage.isNow else {
            return .busy("no name server can be asked now")
        }
        return .failed(String(cString: cdns_words(code)))
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
