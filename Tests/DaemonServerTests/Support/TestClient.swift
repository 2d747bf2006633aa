import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ThumbcacheProtocol

/// A client whose sends, reads and close a test controls.
final class TestClient: Sendable {
    private let channel: any Channel
    private let inbox: Inbox

    private init(channel: any Channel, inbox: Inbox) {
        self.channel = channel
        self.inbox = inbox
    }

    /// - Parameter reads: false for a client that reads nothing before ``startReading()``.
    static func connect(to path: String, on group: any EventLoopGroup, reads: Bool = true) async throws -> TestClient {
        let inbox = Inbox()
        let channel = try await ClientBootstrap(group: group)
            .channelOption(.autoRead, value: reads)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(InboxHandler(inbox: inbox))
                }
            }
            .connect(unixDomainSocketPath: path)
            .get()
        return TestClient(channel: channel, inbox: inbox)
    }

    // MARK: Sending

    /// Returns once the kernel has accepted all of it.
    func send(_ bytes: ByteBuffer) async throws {
        try await channel.writeAndFlush(bytes)
    }

    func send(raw text: String) async throws {
        try await send(ByteBuffer(string: text))
    }

    func send(_ words: String...) async throws {
        try await send(Self.request(words))
    }

    func send(_ arguments: [ByteBuffer]) async throws {
        var bytes = ByteBuffer()
        bytes.writeRequest(arguments)
        try await send(bytes)
    }

    /// Sends several requests in one write.
    func pipeline(_ requests: [[String]]) async throws {
        var bytes = ByteBuffer()
        for request in requests { bytes.writeRequest(request) }
        try await send(bytes)
    }

    /// Waits until the kernel has accepted all output.
    func flushed() async throws {
        try await channel.writeAndFlush(ByteBuffer())
    }

    /// Sends without waiting for the kernel.
    func sendWithoutWaiting(_ bytes: ByteBuffer) {
        channel.writeAndFlush(bytes, promise: nil)
    }

    static func request(_ words: [String]) -> ByteBuffer {
        var bytes = ByteBuffer()
        bytes.writeRequest(words)
        return bytes
    }

    // MARK: Receiving

    /// Receives the next reply.
    func reply() async throws -> Value {
        try await inbox.next { state in try state.bytes.readReply() }
    }

    func replies(_ count: Int) async throws -> [Value] {
        var replies: [Value] = []
        for _ in 0..<count { replies.append(try await reply()) }
        return replies
    }

    func call(_ words: String...) async throws -> Value {
        try await send(Self.request(words))
        return try await reply()
    }

    func call(_ arguments: [ByteBuffer]) async throws -> Value {
        try await send(arguments)
        return try await reply()
    }

    /// Sends a request and returns the bytes of its reply.
    func wire(_ words: String...) async throws -> String {
        try await wire(words.map { ByteBuffer(string: $0) })
    }

    func wire(_ arguments: [ByteBuffer]) async throws -> String {
        var bytes = ByteBuffer()
        bytes.writeRequest(arguments)
        bytes.writeRequest(["ECHO", "<end>"])
        try await send(bytes)
        return try await inbox.next { state in
            let text = String(buffer: state.bytes)
            guard text.hasSuffix(Self.endOfReply) else { return nil }
            state.bytes.clear()
            return String(text.dropLast(Self.endOfReply.count))
        }
    }

    private static let endOfReply = "$5\r\n<end>\r\n"

    /// Receives text until the server closes.
    func rest() async throws -> String {
        String(buffer: try await restOfBytes())
    }

    /// Receives until the server closes.
    func restOfBytes() async throws -> ByteBuffer {
        try await inbox.next { state in
            guard state.isClosed else { return nil }
            defer { state.bytes = ByteBuffer() }
            return state.bytes
        }
    }

    /// The number of received bytes that were not consumed.
    var received: Int { inbox.received }

    // MARK: Connecting and closing

    func startReading() async throws {
        try await channel.setOption(.autoRead, value: true).get()
    }

    /// Closes the output, unless the server has closed already.
    func halfClose() async throws {
        do {
            try await channel.close(mode: .output)
        } catch ChannelError.alreadyClosed {
            // The server has closed, and this side has noticed.
        } catch let error as IOError where [EBADF, ENOTCONN, EPIPE].contains(error.errnoCode) {
            // The server closed at the same time.
        }
    }

    func close() async throws {
        try await channel.close()
    }

    /// Waits until the server has closed the connection.
    func closed() async throws {
        try await channel.closeFuture.get()
    }
}

enum ClientError: Error {
    /// The server closed early. Has the bytes received so far.
    case closed(String)
}

extension ByteBuffer {
    /// A request with text arguments.
    mutating func writeRequest(_ words: [String]) { writeRequest(words.map { ByteBuffer(string: $0) }) }
}

/// The input of a client.
private final class Inbox: Sendable {
    struct State {
        var bytes = ByteBuffer()
        var isClosed = false
        var waiting: CheckedContinuation<Void, Never>?
    }

    private let state = NIOLockedValueBox(State())

    var received: Int { state.withLockedValue { $0.bytes.readableBytes } }

    func change(_ body: (inout State) -> Void) {
        let waiting = state.withLockedValue { state in
            body(&state)
            defer { state.waiting = nil }
            return state.waiting
        }
        waiting?.resume()
    }

    /// Waits until `body` returns a value. One call at a time.
    func next<Result: Sendable>(_ body: (inout State) throws -> Result?) async throws -> Result {
        while true {
            let (result, seen, isClosed) = try state.withLockedValue { state in
                (try body(&state), state.bytes.writerIndex, state.isClosed)
            }
            if let result { return result }
            if isClosed { throw ClientError.closed(state.withLockedValue { String(buffer: $0.bytes) }) }
            await withTaskCancellationHandler {
                await withCheckedContinuation { continuation in
                    let isStale = state.withLockedValue { state in
                        if state.bytes.writerIndex != seen || state.isClosed { return true }
                        state.waiting = continuation
                        return false
                    }
                    if isStale { continuation.resume() }
                }
            } onCancel: {
                // The test has timed out.
                change { $0.isClosed = true }
            }
        }
    }
}

private final class InboxHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let inbox: Inbox

    init(inbox: Inbox) {
        self.inbox = inbox
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        inbox.change { $0.bytes.writeBuffer(&bytes) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        inbox.change { $0.isClosed = true }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A reset by the server. The test checks the input before it.
        context.close(promise: nil)
    }
}
