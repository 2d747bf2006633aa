import NIOCore
import NIOEmbedded
import Testing
import ThumbcacheProtocol

@testable @_spi(Wire) import Thumbcache

@Suite struct ReplyHandlerTests {
    private let handler = ReplyHandler()
    private let channel: EmbeddedChannel

    init() throws {
        channel = EmbeddedChannel(handler: handler)
        try channel.connect(to: SocketAddress(unixDomainSocketPath: "/played")).wait()
    }

    private func send(by seconds: Int64? = nil) -> Exchange {
        let exchange = Exchange(by: seconds.map { channel.eventLoop.now + .seconds($0) }) {}
        let isFirst = handler.outbox.append([OutgoingRequest(request: ThumbcacheRequest("?"), exchange: exchange)])
        if isFirst { channel.embeddedEventLoop.execute { [handler] in handler.sendAll() } }
        return exchange
    }

    private func isResolved(_ exchanges: [Exchange]) -> [Bool] { exchanges.map(\.reply.isResolved) }

    @Test func `each request times out at its own deadline, in any order`() throws {
        let all = [send(by: 30), send(), send(by: 10), send(by: 20)]
        channel.embeddedEventLoop.run()
        channel.embeddedEventLoop.advanceTime(by: .seconds(9))
        #expect(isResolved(all) == [false, false, false, false])
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(isResolved(all) == [false, false, true, false])
        channel.embeddedEventLoop.advanceTime(by: .seconds(10))
        #expect(isResolved(all) == [false, false, true, true])
        channel.embeddedEventLoop.advanceTime(by: .seconds(10))
        #expect(isResolved(all) == [true, false, true, true])
        channel.close(promise: nil)
        channel.embeddedEventLoop.run()
        #expect(isResolved(all) == [true, true, true, true])
    }

    @Test func `a late reply is not delivered to another request`() throws {
        let (late, next) = (send(by: 1), send(by: 5))
        channel.embeddedEventLoop.run()
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        try channel.writeInbound(ByteBuffer(string: "+late\r\n+next\r\n"))
        #expect(late.reply.outcome == .failure(.timeout))
        #expect(next.reply.outcome == .success(.simpleString("next")))
    }

    @Test func `requests of one turn are sent in one write`() throws {
        for _ in 0..<3 { _ = send() }
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        channel.embeddedEventLoop.run()
        #expect(try sent() == [String(repeating: "*1\r\n$1\r\n?\r\n", count: 3)])
        _ = send()
        channel.embeddedEventLoop.run()
        #expect(try sent() == ["*1\r\n$1\r\n?\r\n"])
    }

    @Test func `a large request is sent without a copy, in order`() throws {
        var large = ThumbcacheRequest("PUT")
        large.append(ByteBuffer(repeating: UInt8(ascii: "x"), count: 5_000))
        _ = send()
        _ = handler.outbox.append([OutgoingRequest(request: large, exchange: nil)])
        _ = send()
        channel.embeddedEventLoop.run()
        let all = try sent()
        #expect(all.count == 3 && all[1].utf8.count == large.body.readableBytes)
        #expect(all.joined() == "*1\r\n$1\r\n?\r\n*2\r\n\(String(buffer: large.body))*1\r\n$1\r\n?\r\n")
    }

    @Test func `a request on a closed connection fails`() throws {
        let early = send()
        channel.close(promise: nil)
        // Closing the connection fails unsent requests.
        #expect(early.reply.outcome == .failure(.connectionLost))
        // The handler may still be in the pipeline.
        let late = send()
        handler.sendAll()
        #expect(late.reply.outcome == .failure(.connectionLost))
    }

    @Test func `nothing is decoded after the first invalid byte`() throws {
        let (first, second) = (send(), send())
        channel.embeddedEventLoop.run()
        try channel.writeInbound(ByteBuffer(string: "+there\r\n?\r\n+more\r\n"))
        channel.embeddedEventLoop.run()
        #expect(first.reply.outcome == .success(.simpleString("there")))
        guard case .failure(.protocolViolation)? = second.reply.outcome else {
            Issue.record("\(String(describing: second.reply.outcome))")
            return
        }
    }

    private func sent() throws -> [String] {
        var all: [String] = []
        while let bytes = try channel.readOutbound(as: ByteBuffer.self) { all.append(String(buffer: bytes)) }
        return all
    }

    @Test func `a reply received before the connection breaks is delivered`() throws {
        let (first, second) = (send(), send())
        channel.embeddedEventLoop.run()
        // The connection closes before the read completes.
        channel.pipeline.fireChannelRead(ByteBuffer(string: "+there\r\n"))
        channel.close(promise: nil)
        channel.embeddedEventLoop.run()
        #expect(first.reply.outcome == .success(.simpleString("there")))
        #expect(second.reply.outcome == .failure(.connectionLost))
    }
}
