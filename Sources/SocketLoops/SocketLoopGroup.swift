import Dispatch
import NIOConcurrencyHelpers
import NIOCore

/// As many loops as there are to be threads; sockets are spread over them in turn.
public final class SocketLoopGroup: EventLoopGroup {
    public let loops: [SocketLoop]
    private let socketTurn = NIOLockedValueBox(0)
    private let turn = NIOLockedValueBox(0)

    /// - Parameter threads: 1 or more.
    /// - Throws: what ``SocketLoop/init()`` throws.
    public init(threads: Int) throws {
        loops = try (0..<max(1, threads)).map { _ in try SocketLoop() }
    }

    /// The loop whose turn it is to take on a socket.
    public func nextForSocket() -> SocketLoop { loops[next(in: socketTurn)] }

    /// For anything else: a timer in between does not give a loop two sockets in a row.
    public func next() -> any EventLoop { loops[next(in: turn)] }

    private func next(in turn: NIOLockedValueBox<Int>) -> Int {
        turn.withLockedValue { turn in
            defer { turn = (turn + 1) % loops.count }
            return turn
        }
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
