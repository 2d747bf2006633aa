import Glibc
import NIOCore
import NIOPosix

/// A minimal swift-nio server with one event loop, for comparison with the hit path of thumbcached.
///
/// It does not parse requests: it counts frames of a fixed length, and answers each with a prepared image. It uses the
/// given number of images in turn, so that it has as many processor cache misses as other servers.
///
///     FloorServer SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES
@main enum Floor {
    static func main() async throws {
        let words = CommandLine.arguments
        guard words.count == 5, let frame = Int(words[2]), frame > 0, let length = Int(words[3]), length >= 0,
            let images = Int(words[4]), images > 0
        else {
            print("FloorServer SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES")
            exit(2)
        }
        let replies = (0..<images).map { _ in
            var reply = ByteBuffer(string: "$\(length)\r\n")
            reply.writeRepeatingByte(120, count: length)
            reply.writeString("\r\n")
            return reply
        }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(
                        PreparedReplies(frameLength: frame, replies: replies))
                }
            }
            .bind(unixDomainSocketPath: words[1])
            .get()
        try await server.closeFuture.get()
    }
}

private final class PreparedReplies: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let frameLength: Int
    private let replies: [ByteBuffer]
    private var next = 0
    /// Bytes of an incomplete frame.
    private var begun = 0

    init(frameLength: Int, replies: [ByteBuffer]) {
        self.frameLength = frameLength
        self.replies = replies
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        begun += unwrapInboundIn(data).readableBytes
        while begun >= frameLength {
            begun -= frameLength
            context.write(wrapOutboundOut(replies[next]), promise: nil)
            next = (next + 1) % replies.count
        }
        context.flush()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
