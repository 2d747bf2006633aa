import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ThumbcacheProtocol

@testable @_spi(Wire) import Thumbcache

/// A fake daemon on a real socket; the test accepts connections, reads requests and sends replies. It answers HELLO and
/// CLIENT SETINFO itself.
final class FakeDaemon: Sendable {
    let path: String
    private let directory: String
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let peers = Mailbox<FakePeer>()
    private let hello: String
    private let listener = NIOLockedValueBox<(any Channel)?>(nil)

    static let greeting = "%3\r\n+server\r\n+thumbcached\r\n+version\r\n+0.1.0\r\n+proto\r\n:3\r\n"

    /// - Parameter hello: the reply to HELLO.
    init(hello: String = greeting) async throws {
        self.hello = hello
        // The path of a Unix socket is limited to 107 bytes.
        directory = "/tmp/thumbcache-\(UUID().uuidString.prefix(13))"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
        path = "\(directory)/s"
        try await listen()
    }

    func listen() async throws {
        let (peers, hello) = (peers, hello)
        let channel = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let peer = FakePeer(channel)
                    let handler = FakeHandler(peer, hello) { peers.put(peer) }
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            }
            .bind(unixDomainSocketPath: path, cleanupExistingSocketFile: true).get()
        listener.withLockedValue { $0 = channel }
    }

    /// Stops accepting connections, like a killed daemon. The test closes existing peers.
    func unlisten() async throws {
        try await listener.withLockedValue { $0 }?.close()
    }

    /// Returns the next connection.
    func accept() async throws -> FakePeer { try await peers.next() }

    func stop() async throws {
        try await group.shutdownGracefully()
        try FileManager.default.removeItem(atPath: directory)
    }
}

/// A connection to a ``FakeDaemon``.
final class FakePeer: Sendable {
    private let channel: any Channel
    /// Resolved when a part of a request has arrived.
    let partOfRequest = OneShot<Void>()
    fileprivate let requests = Mailbox<[String]>()

    init(_ channel: any Channel) { self.channel = channel }

    /// Returns the next request other than HELLO and CLIENT.
    func next() async throws -> [String] { try await requests.next() }

    /// The number of received requests that were not read.
    var unread: Int { requests.count }

    func send(_ text: String) { channel.writeAndFlush(ByteBuffer(string: text), promise: nil) }

    func send(_ buffer: ByteBuffer) { channel.writeAndFlush(buffer, promise: nil) }

    func message(_ user: String, _ payload: String) {
        send(">3\r\n+message\r\n$\(user.utf8.count)\r\n\(user)\r\n$\(payload.utf8.count)\r\n\(payload)\r\n")
    }

    /// Reads a SUBSCRIBE request and confirms its channels.
    @discardableResult
    func subscribe() async throws -> [String] {
        let request = try await next()
        for (index, channel) in request.dropFirst().enumerated() {
            send(">3\r\n+subscribe\r\n+\(channel)\r\n:\(index + 1)\r\n")
        }
        return request
    }

    func close() async throws {
        channel.close(promise: nil)
        try await closed()
    }

    /// Waits until the connection is closed.
    func closed() async throws { try await channel.closeFuture.get() }
}

private final class FakeHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let peer: FakePeer
    private let hello: String
    private let onHello: () -> Void
    private var decoder = RequestDecoder(limits: RequestLimits(argument: 16 << 20))
    private var received = ByteBuffer()

    init(_ peer: FakePeer, _ hello: String, onHello: @escaping () -> Void) {
        (self.peer, self.hello, self.onHello) = (peer, hello, onHello)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        received.writeImmutableBuffer(unwrapInboundIn(data))
        do {
            while let request = try decoder.next(&received) {
                let words = (0..<request.count).map { String(buffer: request[$0]) }
                switch words[0] {
                case "HELLO":
                    peer.send(hello)
                    onHello()
                case "CLIENT": peer.send("+OK\r\n")
                default: peer.requests.put(words)
                }
            }
            if received.readableBytes > 0 { peer.partOfRequest.resolve(.success(())) }
        } catch {
            context.close(promise: nil)
        }
    }
}

/// An unbounded queue with one reader.
final class Mailbox<Content: Sendable>: Sendable {
    private struct State {
        var contents: [Content] = []
        var reader: OneShot<Content>?
    }

    private let state = NIOLockedValueBox(State())

    var count: Int { state.withLockedValue { $0.contents.count } }

    func put(_ content: Content) {
        let reader: OneShot<Content>? = state.withLockedValue { state in
            if state.reader == nil { state.contents.append(content) }
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resolve(.success(content))
    }

    func next() async throws -> Content {
        let reader = OneShot<Content>()
        state.withLockedValue { state in
            if state.contents.isEmpty {
                state.reader = reader
            } else {
                reader.resolve(.success(state.contents.removeFirst()))
            }
        }
        return try await reader.wait().get()
    }
}
