import Dispatch
import NIOCore
import Synchronization

/// As many loops as there are to be threads; sockets are spread over them in turn.
public final class SocketLoopGroup: EventLoopGroup {
    public let loops: [SocketLoop]
    private let sockets = Atomic<Int>(0)
    private let others = Atomic<Int>(0)

    /// - Parameter threads: 1 or more.
    /// - Throws: what ``SocketLoop/init()`` throws.
    public init(threads: Int) throws {
        loops = try (0..<max(1, threads)).map { _ in try SocketLoop() }
    }

    /// The loop whose turn it is to take on a socket.
    public func nextForSocket() -> SocketLoop { next(in: sockets) }

    /// For anything else: a timer in between does not give a loop two sockets in a row.
    public func next() -> any EventLoop { next(in: others) }

    private func next(in turns: borrowing Atomic<Int>) -> SocketLoop {
        loops[turns.wrappingAdd(1, ordering: .relaxed).oldValue % loops.count]
    }

    /// Returns when every loop has done what it had before it.
    public func barrier() async throws {
        for loop in loops { try await loop.submit {}.get() }
    }

    public func any() -> any EventLoop { loops[0] }
    public func makeIterator() -> EventLoopIterator { EventLoopIterator(loops) }

    /// Ends all loops. What they have begun is done; their sockets are closed.
    ///
    /// Without libdispatch, which swift-nio's own way goes through.
    public func end() async {
        for loop in loops { await withCheckedContinuation { ended in loop.end { ended.resume() } } }
    }

    /// The same as ``end()``.
    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        Task {
            await end()
            queue.async { callback(nil) }
        }
    }
}
