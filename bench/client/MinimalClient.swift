import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A minimal asynchronous client on bare swift-nio: requests that are prepared, replies of one fixed length that are not
/// parsed, and one task that is woken for each reply. For comparison with the library.
final class MinimalClient: ChannelInboundHandler, @unchecked Sendable {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private typealias Waiting = UnsafeContinuation<Void, Never>

    private let replyLength: Int
    private let outbox = NIOLockedValueBox<[(request: ByteBuffer, task: Waiting)]>([])
    /// Set once, before the first request.
    private var channel: (any Channel)?
    // Accessed on the event loop only.
    private var waiting = CircularBuffer<Waiting>()
    private var received = 0

    private init(replyLength: Int) { self.replyLength = replyLength }

    static func connect(_ path: String, replyLength: Int) async throws -> MinimalClient {
        let client = MinimalClient(replyLength: replyLength)
        client.channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            .channelInitializer { $0.pipeline.addHandler(client) }
            .connect(unixDomainSocketPath: path).get()
        return client
    }

    /// Sends a request and waits for its reply.
    func reply(to request: ByteBuffer) async {
        await withUnsafeContinuation { task in
            let isFirst = outbox.withLockedValue { outbox in
                outbox.append((request, task))
                return outbox.count == 1
            }
            if isFirst { channel?.eventLoop.execute { self.send() } }
        }
    }

    private func send() {
        let requests = outbox.withLockedValue { outbox in
            defer { outbox = [] }
            return outbox
        }
        var together = ByteBuffer()
        for (request, task) in requests {
            together.writeImmutableBuffer(request)
            waiting.append(task)
        }
        channel?.writeAndFlush(together, promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        received += unwrapInboundIn(data).readableBytes
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        while received >= replyLength, let task = waiting.popFirst() {
            received -= replyLength
            task.resume()
        }
    }
}
