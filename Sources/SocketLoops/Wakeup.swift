import CLinux
import Glibc
import NIOCore

/// Wakes a loop that waits for its descriptors: eventfd(2).
final class Wakeup: PollHandler, Sendable {
    private let descriptor: CInt

    init() throws {
        descriptor = clinux_eventfd()
        guard descriptor >= 0 else { throw IOError(errnoCode: errno, reason: "eventfd") }
    }

    deinit { Glibc.close(descriptor) }

    func watch(with poller: Poller) throws {
        try poller.add(descriptor, for: .readable, self)
    }

    /// From any thread. A counter that is full has rung already.
    func wake() {
        var one: UInt64 = 1
        write(descriptor, &one, MemoryLayout<UInt64>.size)
    }

    /// To be woken is all that it is for.
    func ready(_: Readiness) {
        var count: UInt64 = 0
        read(descriptor, &count, MemoryLayout<UInt64>.size)
    }

    /// Rings for as long as somebody may ring it.
    func close() {}
}
