import Dispatch
import NIOConcurrencyHelpers
import NIOCore

/// As many loops as there are to be threads; sockets are spread over them in turn.
public final class SocketLoopGroup: EventLoopGroup {
    public let loops: [SocketLoop]
    private let turn = NIOLockedValueBox(0)

    /// - Parameter threads: 1 or more.
    /// - Throws: ``IOError`` if a loop could not be started.
    public init(threads: Int) throws {
        loops = try (0..<max(1, threads)).map { _ in try SocketLoop() }
    }

    /// The loop whose turn it is.
    public func nextLoop() -> SocketLoop {
        let index = turn.withLockedValue { turn in
            defer { turn = (turn + 1) % loops.count }
            return turn
        }
        return loops[index]
    }

    public func next() -> any EventLoop { nextLoop() }
    public func any() -> any EventLoop { loops[0] }
    public func makeIterator() -> EventLoopIterator { EventLoopIterator(loops) }

    /// Ends all loops. What they have begun is done; their sockets are closed.
    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
        let running = NIOLockedValueBox(loops.count)
        for loop in loops {
            loop.shutdownGracefully(queue: queue) { _ in
                let isLast = running.withLockedValue { running in
                    running -= 1
                    return running == 0
                }
                if isLast { callback(nil) }
            }
        }
    }
}
