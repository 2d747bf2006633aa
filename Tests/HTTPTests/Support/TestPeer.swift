import Glibc
import NIOCore
import NIOPosix
import Testing

/// A client connection that sends raw bytes and parses responses.
final class TestPeer {
    struct Response {
        let status: Int
        let fields: [String: String]
        let body: String
    }

    private let channel: any Channel
    private var pieces: AsyncStream<ByteBuffer>.Iterator
    private var read = ByteBuffer()

    private init(_ channel: any Channel, _ pieces: AsyncStream<ByteBuffer>) {
        (self.channel, self.pieces) = (channel, pieces.makeAsyncIterator())
    }

    /// - Parameter closes: whether to close once the server has closed its output, as clients do.
    static func connect(
        to address: SocketAddress, autoRead: Bool = true, closes: Bool = true
    ) async throws -> TestPeer {
        let (pieces, continuation) = AsyncStream.makeStream(of: ByteBuffer.self)
        let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.autoRead, value: autoRead)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Collector(continuation, closes: closes))
                }
            }
            .connect(to: address).get()
        return TestPeer(channel, pieces)
    }

    func send(_ text: String) async throws { try await channel.writeAndFlush(ByteBuffer(string: text)) }

    func endOutput() async throws { try await channel.close(mode: .output) }

    func close() async throws { try await channel.close() }

    /// Closes so that the server notices it without reading (socket(7), SO_LINGER).
    func reset() async throws {
        let options = try #require(channel as? any SocketOptionProvider)
        try await options.setSoLinger(linger(l_onoff: 1, l_linger: 0)).get()
        try await channel.close()
    }

    /// Reads the next response.
    /// - Parameter isHead: whether it responds to HEAD, and has no body.
    func response(isHead: Bool = false) async throws -> Response {
        var head: [Substring] = []
        while true {
            let text = String(buffer: read)
            if let end = text.firstRange(of: "\r\n\r\n") {
                read.moveReaderIndex(forwardBy: text[..<end.upperBound].utf8.count)
                head = text[..<end.lowerBound].split(separator: "\r\n")
                break
            }
            try await more()
        }
        let fields = head.dropFirst().reduce(into: [String: String]()) { fields, line in
            let parts = line.split(separator: ":", maxSplits: 1)
            fields[parts[0].lowercased()] = String(parts[1].drop { $0 == " " })
        }
        let length = isHead ? 0 : Int(fields["content-length"] ?? "") ?? 0
        while read.readableBytes < length { try await more() }
        let status = Int(head.first?.split(separator: " ").dropFirst().first ?? "") ?? 0
        return Response(status: status, fields: fields, body: read.readString(length: length) ?? "")
    }

    func request(_ request: String, isHead: Bool = false) async throws -> Response {
        try await send(request)
        return try await response(isHead: isHead)
    }

    /// Reads until the server closes the connection.
    func rest() async -> String {
        while let piece = await pieces.next() { read.writeImmutableBuffer(piece) }
        return String(buffer: read)
    }

    private func more() async throws {
        guard let piece = await pieces.next() else { throw Ended(read: String(buffer: read)) }
        read.writeImmutableBuffer(piece)
    }

    /// The connection closed before the response was complete.
    struct Ended: Error { let read: String }
}

private final class Collector: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let pieces: AsyncStream<ByteBuffer>.Continuation
    private let closes: Bool

    init(_ pieces: AsyncStream<ByteBuffer>.Continuation, closes: Bool) { (self.pieces, self.closes) = (pieces, closes) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { pieces.yield(unwrapInboundIn(data)) }

    func channelInactive(context: ChannelHandlerContext) { pieces.finish() }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if closes, case .inputClosed? = event as? ChannelEvent { context.close(promise: nil) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
