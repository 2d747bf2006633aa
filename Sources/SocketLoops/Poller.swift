import CLinux
import Glibc
import NIOCore

/// Something with a descriptor that wants to know when it is ready.
protocol PollHandler: AnyObject {
    func ready(_ events: Readiness)
    /// The loop ends.
    func close()
}

/// A descriptor that is somebody else's.
final class PollClosure: PollHandler {
    private let body: (Readiness) -> Void

    init(_ body: @escaping (Readiness) -> Void) { self.body = body }

    func ready(_ events: Readiness) { body(events) }
    func close() {}
}

/// What a descriptor is ready for, or is to be watched for.
public struct Readiness: OptionSet, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let readable = Readiness(rawValue: CLINUX_EPOLLIN)
    public static let writable = Readiness(rawValue: CLINUX_EPOLLOUT)
    /// Nobody is at the other end any more, or it is broken. This comes without being watched for, again and again.
    public static let gone = Readiness(rawValue: CLINUX_EPOLLHUP | CLINUX_EPOLLERR)
}

/// The descriptors of one loop and who is told of them: epoll(7). Used on the loop alone, but for ``wake()``.
final class Poller {
    private struct Entry {
        var handler: (any PollHandler)?
        /// Told apart by it: what is ready was found out before any of it is handled, and by then a descriptor may have
        /// been closed, and its number taken by another.
        var serial: UInt32 = 0
    }

    private let epoll: CInt
    /// Wakes whoever waits: eventfd(2).
    private let alarm: CInt
    /// Looked up by descriptor.
    private var entries: ContiguousArray<Entry> = [Entry()]
    private var lastSerial: UInt32 = 0
    private let found: UnsafeMutablePointer<clinux_ready>

    init() throws {
        epoll = clinux_epoll_create()
        alarm = clinux_eventfd()
        found = .allocate(capacity: Int(CLINUX_READY_AT_ONCE))
        // Each wake is told once (EPOLLET), so that nobody has to read it, and to nobody: its tag is that of descriptor
        // 0, which no handler watches.
        let isWatched =
            epoll >= 0 && alarm >= 0 && clinux_epoll_add(epoll, alarm, CLINUX_EPOLLIN | CLINUX_EPOLLET, 0) == 0
        guard isWatched else { throw IOError(errnoCode: errno, reason: "no event loop could be started") }
    }

    deinit {
        found.deallocate()
        Glibc.close(alarm)
        Glibc.close(epoll)
    }

    /// Ends a ``wait(for:)``, this one or the next. From any thread.
    func wake() {
        var one: UInt64 = 1
        write(alarm, &one, MemoryLayout<UInt64>.size)
    }

    func add(_ descriptor: CInt, for events: Readiness, _ handler: any PollHandler) throws {
        lastSerial &+= 1
        guard clinux_epoll_add(epoll, descriptor, events.rawValue, tag(descriptor, lastSerial)) == 0 else {
            throw IOError(errnoCode: errno, reason: "epoll_ctl: watch descriptor \(descriptor)")
        }
        while entries.count <= Int(descriptor) { entries.append(Entry()) }
        entries[Int(descriptor)] = Entry(handler: handler, serial: lastSerial)
    }

    func change(_ descriptor: CInt, for events: Readiness) throws {
        let tag = tag(descriptor, entries[Int(descriptor)].serial)
        guard clinux_epoll_change(epoll, descriptor, events.rawValue, tag) == 0 else {
            throw IOError(errnoCode: errno, reason: "epoll_ctl: change what descriptor \(descriptor) is watched for")
        }
    }

    /// Forgets a descriptor that is about to be closed, which is how the kernel is told.
    func remove(_ descriptor: CInt) {
        if entries.indices.contains(Int(descriptor)) { entries[Int(descriptor)].handler = nil }
    }

    /// Watches a descriptor no more that stays open, or has been closed already.
    func stopWatching(_ descriptor: CInt) {
        // There is nothing to be done about a descriptor that the kernel does not know.
        _ = clinux_epoll_remove(epoll, descriptor)
        remove(descriptor)
    }

    private func tag(_ descriptor: CInt, _ serial: UInt32) -> UInt64 {
        UInt64(serial) << 32 | UInt64(UInt32(bitPattern: descriptor))
    }

    /// Waits until something is ready.
    /// - Parameter pause: how long to wait at most; nil is for ever.
    /// - Returns: how much is, for ``tell(_:)``.
    func wait(for pause: TimeAmount?) -> Int {
        // An interrupted wait has found nothing, and the next one will.
        max(0, Int(clinux_epoll_wait(epoll, found, pause?.nanoseconds ?? -1)))
    }

    /// Tells those whose descriptors ``wait(for:)`` has found ready, each once.
    func tell(_ count: Int) {
        for index in 0..<count {
            let (tag, events) = (found[index].tag, found[index].events)
            let entry = entries[Int(UInt32(truncatingIfNeeded: tag))]
            guard entry.serial == UInt32(tag >> 32), let handler = entry.handler else { continue }
            handler.ready(Readiness(rawValue: events))
        }
    }

    /// Closes all there is.
    func close() {
        for handler in entries.compactMap(\.handler) { handler.close() }
    }
}
