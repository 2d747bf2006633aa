import CLinux
import Glibc
import NIOCore

/// The owner of a watched descriptor.
protocol PollHandler: AnyObject {
    func ready(_ events: Readiness)
    /// Called when the loop ends.
    func close()
}

/// Calls a closure for a descriptor that the loop does not own.
final class PollClosure: PollHandler {
    private let body: (Readiness) -> Void

    init(_ body: @escaping (Readiness) -> Void) { self.body = body }

    func ready(_ events: Readiness) { body(events) }
    func close() {}
}

public struct Readiness: OptionSet, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let readable = Readiness(rawValue: CLINUX_EPOLLIN)
    public static let writable = Readiness(rawValue: CLINUX_EPOLLOUT)
    /// The peer has disconnected, or the descriptor has an error. epoll reports this in each round, even if unwatched.
    public static let gone = Readiness(rawValue: CLINUX_EPOLLHUP | CLINUX_EPOLLERR)
}

/// The watched descriptors of one loop and their handlers: epoll(7). Used on the loop only, except ``wake()``.
final class Poller {
    private struct Entry {
        var handler: (any PollHandler)?
        /// Distinguishes successive users of one descriptor number: an earlier handler of the same round may close a
        /// descriptor, and its number may be reused at once.
        var serial: UInt32 = 0
    }

    private let epoll: CInt
    /// An eventfd(2) that ends ``wait(for:)``.
    private let wakeup: CInt
    /// Indexed by descriptor.
    private var entries: ContiguousArray<Entry> = [Entry()]
    private var lastSerial: UInt32 = 0
    private let found: UnsafeMutablePointer<clinux_ready>

    init() throws {
        epoll = clinux_epoll_create()
        wakeup = clinux_eventfd()
        found = .allocate(capacity: Int(CLINUX_READY_AT_ONCE))
        // Edge-triggered (EPOLLET), so that the counter need not be read. The tag is that of descriptor 0, which has no
        // handler.
        let isWatched =
            epoll >= 0 && wakeup >= 0 && clinux_epoll_add(epoll, wakeup, CLINUX_EPOLLIN | CLINUX_EPOLLET, 0) == 0
        guard isWatched else { throw IOError(errnoCode: errno, reason: "create an event loop") }
    }

    deinit {
        found.deallocate()
        Glibc.close(wakeup)
        Glibc.close(epoll)
    }

    /// Ends the current or next ``wait(for:)``. From any thread.
    func wake() {
        var one: UInt64 = 1
        write(wakeup, &one, MemoryLayout<UInt64>.size)
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
            throw IOError(errnoCode: errno, reason: "epoll_ctl: change the events of descriptor \(descriptor)")
        }
    }

    /// Removes a descriptor that the caller closes next; the close removes it from epoll.
    func remove(_ descriptor: CInt) {
        if entries.indices.contains(Int(descriptor)) { entries[Int(descriptor)].handler = nil }
    }

    /// Stops watching a descriptor that stays open, or is closed already.
    func stopWatching(_ descriptor: CInt) {
        // Fails for a closed descriptor, which epoll has removed itself.
        _ = clinux_epoll_remove(epoll, descriptor)
        remove(descriptor)
    }

    private func tag(_ descriptor: CInt, _ serial: UInt32) -> UInt64 {
        UInt64(serial) << 32 | UInt64(UInt32(bitPattern: descriptor))
    }

    /// - Parameter pause: the maximum time; nil for no limit.
    /// - Returns: the number of ready descriptors, for ``dispatch(_:done:)``.
    func wait(for pause: TimeAmount?) -> Int {
        // An interrupted wait returns nothing; the next one reports the events.
        max(0, Int(clinux_epoll_wait(epoll, found, pause?.nanoseconds ?? -1)))
    }

    /// - Parameter done: called after each handler.
    func dispatch(_ count: Int, done: () -> Void = {}) {
        for index in 0..<count {
            let (tag, events) = (found[index].tag, found[index].events)
            let entry = entries[Int(UInt32(truncatingIfNeeded: tag))]
            guard entry.serial == UInt32(tag >> 32), let handler = entry.handler else { continue }
            handler.ready(Readiness(rawValue: events))
            done()
        }
    }

    func close() {
        for handler in entries.compactMap(\.handler) { handler.close() }
    }
}
