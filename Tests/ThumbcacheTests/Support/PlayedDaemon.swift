import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import ThumbcacheProtocol

@testable @_spi(Wire) import Thumbcache

/// A daemon that a test plays: it accepts, is asked, answers and closes when the test says so, over a real socket.
/// HELLO and CLIENT SETINFO are answered by themselves.
final class PlayedDaemon: Sendable {
    let path: String
    private let directory: String
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    private let peers = Mailbox<PlayedPeer>()
    private let hello: String
    private let listener = NIOLockedValueBox<(any Channel)?>(nil)

    static let greeting = "%3\r\n+server\r\n+thumbcached\r\n+version\r\n+0.1.0\r\n+proto\r\n:3\r\n"

    /// - Parameter hello: the answer to HELLO.
    init(hello: String = greeting) async throws {
        self.hello = hello
        // A path of a socket is short, wherever the tests run.
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
                    let peer = PlayedPeer(channel)
                    let handler = PlayedHandler(peer, hello) { peers.put(peer) }
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            }
            .bind(unixDomainSocketPath: path, cleanupExistingSocketFile: true).get()
        listener.withLockedValue { $0 = channel }
    }

    /// Accepts nobody any more, as a daemon that was killed; its peers are closed by the test.
    func unlisten() async throws {
        try await listener.withLockedValue { $0 }?.close()
    }

    /// The next who connects.
    func accept() async throws -> PlayedPeer { try await peers.take() }

    func stop() async throws {
        try await group.shutdownGracefully()
        try FileManager.default.removeItem(atPath: directory)
    }
}

/// A connection to a played daemon.
final class PlayedPeer: Sendable {
    private let channel: any Channel
    /// When a request has come in part.
    let partOfRequest = OneShot<Void>()
    fileprivate let requests = Mailbox<[String]>()

    init(_ channel: any Channel) { self.channel = channel }

    /// The next request, without HELLO and CLIENT.
    func next() async throws -> [String] { try await requests.take() }

    /// Requests that have come and were not taken.
    var unread: Int { requests.count }

    /// Sends bytes of the protocol.
    func send(_ text: String) { channel.writeAndFlush(ByteBuffer(string: text), promise: nil) }

    func send(_ buffer: ByteBuffer) { channel.writeAndFlush(buffer, promise: nil) }

    func message(_ user: String, _ payload: String) {
        send(">3\r\n+message\r\n$\(user.utf8.count)\r\n\(user)\r\n$\(payload.utf8.count)\r\n\(payload)\r\n")
    }

    /// Confirms a SUBSCRIBE of some channels, which is taken here.
    @discardableResult
    func subscribe() async throws -> [String] {
        let request = try await next()
        for (index, channel) in request.dropFirst().enumerated() {
            send(">3\r\n+subscribe\r\n+\(channel)\r\n:\(index + 1)\r\n")
        }
        return request
    }

    /// Closes it, if the client has not.
    func close() async throws {
        channel.close(promise: nil)
        try await closed()
    }

    /// Returns when the client has closed.
    func closed() async throws { try await channel.closeFuture.get() }
}

private final class PlayedHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let peer: PlayedPeer
    private let hello: String
    private let onHello: () -> Void
    private var decoder = RequestDecoder(limits: RequestLimits())
    private var received = ByteBuffer()

    init(_ peer: PlayedPeer, _ hello: String, onHello: @escaping () -> Void) {
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

/// Things that come, and one task that waits for them.
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

    func take() async throws -> Content {
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
