import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// A minimal asynchronous client on bare swift-nio, for comparison with the library. Sends prepared requests, finds the
/// end of each reply, and wakes one task for it.
final class MinimalClient: ChannelInboundHandler, @unchecked Sendable {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private typealias Waiting = UnsafeContinuation<Void, Never>

    private let outbox = NIOLockedValueBox<[(request: ByteBuffer, task: Waiting)]>([])
    /// Set once, before the first request.
    private var channel: (any Channel)?
    // Accessed on the event loop only.
    private var waiting = CircularBuffer<Waiting>()
    private var replies: any ReplyCounter

    private init(_ replies: any ReplyCounter) { self.replies = replies }

    static func connect(_ path: String, _ replies: any ReplyCounter) async throws -> MinimalClient {
        let client = MinimalClient(replies)
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
        unwrapInboundIn(data).withUnsafeReadableBytes { replies.add($0) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        while replies.count > 0, let task = waiting.popFirst() {
            replies.count -= 1
            task.resume()
        }
    }
}

/// Finds the ends of replies in the input.
protocol ReplyCounter {
    /// Complete replies.
    var count: Int { get set }

    mutating func add(_ bytes: UnsafeRawBufferPointer)
}

/// Replies that all have the same length.
struct FixedReplies: ReplyCounter {
    let length: Int
    var count = 0
    private var incomplete = 0

    init(length: Int) { self.length = length }

    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        incomplete += bytes.count
        count += incomplete / length
        incomplete %= length
    }
}

/// Replies that are arrays of strings, numbers and nulls, such as an image with its metadata.
struct ArrayReplies: ReplyCounter {
    var count = 0
    /// Missing elements of the current reply.
    private var elements = 0
    /// Missing bytes of a string, with its line end.
    private var string = 0
    /// The current line: its first byte, the digits after it, and whether it has a minus. Length -1 is a null.
    private var marker: UInt8 = 0
    private var number = 0
    private var isNegative = false

    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        var index = 0
        while index < bytes.count {
            if string > 0 {
                let length = min(string, bytes.count - index)
                index += length
                string -= length
                if string == 0 { endElement() }
                continue
            }
            let byte = bytes[index]
            index += 1
            switch byte {
            case UInt8(ascii: "\n"): endLine()
            case _ where marker == 0: marker = byte
            case UInt8(ascii: "-"): isNegative = true
            case UInt8(ascii: "0")...UInt8(ascii: "9"): number = number &* 10 &+ Int(byte &- UInt8(ascii: "0"))
            default: break
            }
        }
    }

    private mutating func endLine() {
        switch marker {
        case UInt8(ascii: "*"): elements = number
        case UInt8(ascii: "$") where !isNegative: string = number + 2
        default: endElement()
        }
        (marker, number, isNegative) = (0, 0, false)
    }

    private mutating func endElement() {
        precondition(elements > 0, "a reply is not an array")
        elements -= 1
        if elements == 0 { count += 1 }
    }
}
