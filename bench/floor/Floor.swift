import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix

/// A minimal swift-nio server with one event loop, for comparison with thumbcached and thumbcached-http.
///
///     FloorServer SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES
///     FloorServer http SOCKET IMAGE-LENGTH IMAGES
///
/// The first does not parse requests: it counts frames of a fixed length. The second is a bare HTTP/1.1 server. Both
/// answer each request with a prepared image, and use the given number of images in turn, so that they have as many
/// processor cache misses as other servers.
@main enum Floor {
    static func main() async throws {
        let words = CommandLine.arguments.dropFirst()
        let isHTTP = words.first == "http"
        let numbers = words.dropFirst(isHTTP ? 2 : 1).compactMap { Int($0) }.filter { $0 > 0 }
        guard let path = words.dropFirst(isHTTP ? 1 : 0).first, numbers.count == (isHTTP ? 2 : 3) else {
            print("FloorServer SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES | http SOCKET IMAGE-LENGTH IMAGES")
            exit(2)
        }
        let (length, count) = (numbers[numbers.count - 2], numbers[numbers.count - 1])
        let bulks = (0..<count).map { _ in
            var bulk = ByteBuffer(string: "$\(length)\r\n")
            bulk.writeRepeatingByte(120, count: length)
            bulk.writeString("\r\n")
            return bulk
        }
        let bodies = (0..<count).map { _ in ByteBuffer(repeating: 120, count: length) }
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if isHTTP {
                        try pipeline.configureHTTPServerPipeline(withErrorHandling: false)
                        try pipeline.addHandler(PreparedResponses(bodies))
                    } else {
                        try pipeline.addHandler(PreparedReplies(frameLength: numbers[0], replies: bulks))
                    }
                }
            }
            .bind(unixDomainSocketPath: path)
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

private final class PreparedResponses: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let bodies: [ByteBuffer]
    private var next = 0

    init(_ bodies: [ByteBuffer]) { self.bodies = bodies }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .end = unwrapInboundIn(data) else { return }
        let body = bodies[next]
        next = (next + 1) % bodies.count
        let headers: HTTPHeaders = ["Content-Type": "image/png", "Content-Length": "\(body.readableBytes)"]
        let head = HTTPResponseHead(version: .http1_1, status: .ok, headers: headers)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}
