import Dispatch
import LinuxSupport
import NIOCore
import Synchronization

/// A group of event loops with one thread each. Sockets are assigned in rotation.
public final class SocketLoopGroup: EventLoopGroup {
    public let loops: [SocketLoop]
    private let sockets = Atomic<Int>(0)
    private let others = Atomic<Int>(0)

    /// - Parameters:
    ///   - threads: 1 or more.
    ///   - sentBuffers: receives the buffers that streams have sent; nil to free them.
    /// - Throws: what ``SocketLoop/init(named:sentBuffers:)`` throws.
    public init(threads: Int, sentBuffers: BufferPool? = nil) throws {
        loops = try (0..<max(1, threads)).map {
            try SocketLoop(named: "event loop \($0)", sentBuffers: sentBuffers)
        }
    }

    public func nextForSocket() -> SocketLoop { next(in: sockets) }

    /// Returns the loop for anything else. Has a rotation of its own, so that timers do not unbalance the sockets.
    public func next() -> any EventLoop { next(in: others) }

    private func next(in counter: borrowing Atomic<Int>) -> SocketLoop {
        loops[counter.wrappingAdd(1, ordering: .relaxed).oldValue % loops.count]
    }

    /// Returns once every loop has run all tasks queued before the call.
    public func barrier() async throws {
        for loop in loops { try await loop.submit {}.get() }
    }

    public func any() -> any EventLoop { loops[0] }
    public func makeIterator() -> EventLoopIterator { EventLoopIterator(loops) }

    /// Ends all loops: queued tasks run, and sockets close. Does not use libdispatch, unlike ``shutdownGracefully``.
    public func end() async {
        for loop in loops { await withCheckedContinuation { ended in loop.end { ended.resume() } } }
    }

    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        Task {
            await end()
            queue.async { callback(nil) }
        }
    }
}
