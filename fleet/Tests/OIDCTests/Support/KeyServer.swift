import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// An HTTP server on loopback that sends the same bytes after each request and closes the connection.
final class KeyServer: Sendable {
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let heads = NIOLockedValueBox<[String]>([])
    let url: String

    /// - Parameter closes: false to keep the connection open, as if more bytes followed.
    init(_ response: String, closes: Bool = true) async throws {
        let heads = heads
        let channel = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        Handler(response: response, closes: closes, heads: heads))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        url = "http://127.0.0.1:\(channel.localAddress?.port ?? 0)/keys"
    }

    /// The received requests.
    var requests: [String] { heads.withLockedValue { $0 } }

    func stop() async throws { try await group.shutdownGracefully() }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let response: String
        private let closes: Bool
        private let heads: NIOLockedValueBox<[String]>
        private var received = ""

        init(response: String, closes: Bool, heads: NIOLockedValueBox<[String]>) {
            (self.response, self.closes, self.heads) = (response, closes, heads)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            received += String(buffer: unwrapInboundIn(data))
            guard received.hasSuffix("\r\n\r\n") else { return }
            heads.withLockedValue { $0.append(received) }
            received = ""
            let channel = context.channel
            let written = channel.writeAndFlush(ByteBuffer(string: response))
            if closes { written.whenComplete { _ in channel.close(promise: nil) } }
        }
    }
}
