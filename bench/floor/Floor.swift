import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix

/// A minimal swift-nio server with one event loop, for comparison with thumbcached and thumbcached-http.
///
///     FloorServer SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES
///     FloorServer http SOCKET IMAGE-LENGTH IMAGES
///     FloorServer forward SOCKET IMAGE-LENGTH DAEMON
///
/// The first does not parse requests: it counts frames of a fixed length. The second is a bare HTTP/1.1 server. Both
/// answer each request with a prepared image, and use the given number of images in turn, so that they have as many
/// processor cache misses as other servers. The third is a bare HTTP/1.1 server that requests each image from the
/// daemon.
@main enum Floor {
    static func main() async throws {
        let words = Array(CommandLine.arguments.dropFirst())
        let numbers = words.map { Int($0) ?? 0 }
        switch (words.first, words.count) {
        case ("forward", 4) where numbers[2] > 0:
            try await serve(at: words[1]) { try Forwarder.add(to: $0, daemon: words[3], imageLength: numbers[2]) }
        case ("http", 4) where numbers[2] > 0 && numbers[3] > 0:
            let bodies = (0..<numbers[3]).map { _ in ByteBuffer(repeating: 120, count: numbers[2]) }
            try await serve(at: words[1]) { channel in
                let pipeline = channel.pipeline.syncOperations
                try pipeline.configureHTTPServerPipeline(withErrorHandling: false)
                try pipeline.addHandler(PreparedResponses(bodies))
            }
        case (_, 4) where numbers[1] > 0 && numbers[2] > 0 && numbers[3] > 0:
            let replies = (0..<numbers[3]).map { _ in
                var reply = ByteBuffer(string: "$\(numbers[2])\r\n")
                reply.writeRepeatingByte(120, count: numbers[2])
                reply.writeString("\r\n")
                return reply
            }
            try await serve(at: words[0]) { channel in
                try channel.pipeline.syncOperations.addHandler(
                    PreparedReplies(frameLength: numbers[1], replies: replies))
            }
        default:
            print(
                "FloorServer SOCKET FRAME-LENGTH IMAGE-LENGTH IMAGES | http SOCKET IMAGE-LENGTH IMAGES | "
                    + "forward SOCKET IMAGE-LENGTH DAEMON")
            exit(2)
        }
    }

    private static func serve(
        at path: String, _ configure: @escaping @Sendable (any Channel) throws -> Void
    ) async throws {
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try configure(channel) }
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
        context.write(wrapOutboundOut(.head(HTTPResponseHead(body))), promise: nil)
        context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}

/// Requests the image of each HTTP request from the daemon. Each HTTP connection has its own connection to the daemon:
/// a GET with a size may wait for a rendition, and would delay others. Paths are `/avatar/HASH?s=80`. All images have
/// the same length.
private final class Forwarder: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart

    private let daemon: EventLoopFuture<any Channel>

    private init(_ daemon: EventLoopFuture<any Channel>) { self.daemon = daemon }

    static func add(to channel: any Channel, daemon path: String, imageLength: Int) throws {
        let pipeline = channel.pipeline.syncOperations
        try pipeline.configureHTTPServerPipeline(withErrorHandling: false)
        let daemon = ClientBootstrap(group: channel.eventLoop)
            .channelInitializer { $0.pipeline.addHandler(ForwardedReplies(to: channel, imageLength: imageLength)) }
            .connect(unixDomainSocketPath: path)
        daemon.whenFailure { _ in channel.close(promise: nil) }
        try pipeline.addHandler(Forwarder(daemon))
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(let head) = unwrapInboundIn(data) else { return }
        let name = head.uri.utf8.dropFirst("/avatar/".utf8.count).prefix(32)
        var frame = ByteBuffer(string: "*5\r\n$3\r\nGET\r\n$4\r\nsite\r\n$\(name.count)\r\n")
        frame.writeBytes(name)
        frame.writeStaticString("\r\n$4\r\nSIZE\r\n$2\r\n80\r\n")
        daemon.whenSuccess { [frame] in $0.writeAndFlush(frame, promise: nil) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        daemon.whenSuccess { $0.close(promise: nil) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }
}

/// Sends each reply of the daemon as a response. There is one request at a time.
private final class ForwardedReplies: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private let channel: any Channel
    private let prefix: String
    private let imageLength: Int
    private let received: NIOLoopBoundBox<ByteBuffer>

    init(to channel: any Channel, imageLength: Int) {
        self.channel = channel
        self.imageLength = imageLength
        prefix = "$\(imageLength)\r\n"
        received = NIOLoopBoundBox(ByteBuffer(), eventLoop: channel.eventLoop)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var reply = unwrapInboundIn(data)
        if received.value.readableBytes > 0 {
            received.value.writeBuffer(&reply)
            reply = received.value
        }
        let begin = prefix.utf8.count
        if reply.readableBytes >= begin {
            precondition(reply.getString(at: reply.readerIndex, length: begin) == prefix, "the reply is not an image")
        }
        guard reply.readableBytes >= begin + imageLength + 2 else {
            received.value = reply
            return
        }
        received.value = ByteBuffer()
        let body = reply.getSlice(at: reply.readerIndex + begin, length: imageLength) ?? ByteBuffer()
        channel.write(HTTPServerResponsePart.head(HTTPResponseHead(body)), promise: nil)
        channel.write(HTTPServerResponsePart.body(.byteBuffer(body)), promise: nil)
        channel.writeAndFlush(HTTPServerResponsePart.end(nil), promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        channel.close(promise: nil)
    }
}

extension HTTPResponseHead {
    fileprivate init(_ body: ByteBuffer) {
        let headers: HTTPHeaders = ["Content-Type": "image/png", "Content-Length": "\(body.readableBytes)"]
        self.init(version: .http1_1, status: .ok, headers: headers)
    }
}
