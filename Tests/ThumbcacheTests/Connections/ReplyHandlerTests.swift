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

    private func ask(by seconds: Int64? = nil) -> Exchange {
        let exchange = Exchange(by: seconds.map { channel.eventLoop.now + .seconds($0) }) {}
        let isFirst = handler.outbox.put([OutgoingRequest(request: ThumbcacheRequest("?"), exchange: exchange)])
        if isFirst { channel.embeddedEventLoop.execute { [handler] in handler.sendAll() } }
        return exchange
    }

    private func isResolved(_ exchanges: [Exchange]) -> [Bool] { exchanges.map(\.reply.isResolved) }

    @Test func `each wait ends at its own time, in whatever order they began`() throws {
        let all = [ask(by: 30), ask(), ask(by: 10), ask(by: 20)]
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

    @Test func `a reply that comes too late is nobody else's`() throws {
        let (late, next) = (ask(by: 1), ask(by: 5))
        channel.embeddedEventLoop.run()
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        try channel.writeInbound(ByteBuffer(string: "+late\r\n+next\r\n"))
        #expect(late.reply.outcome == .failure(.timeout))
        #expect(next.reply.outcome == .success(.simpleString("next")))
    }

    @Test func `what is asked in one turn goes out together, and nothing stays behind`() throws {
        for _ in 0..<3 { _ = ask() }
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        channel.embeddedEventLoop.run()
        #expect(try sent() == [String(repeating: "*1\r\n$1\r\n?\r\n", count: 3)])
        _ = ask()
        channel.embeddedEventLoop.run()
        #expect(try sent() == ["*1\r\n$1\r\n?\r\n"])
    }

    @Test func `what is large is sent from where it lies, in its place`() throws {
        var large = ThumbcacheRequest("PUT")
        large.append(ByteBuffer(repeating: UInt8(ascii: "x"), count: 5_000))
        _ = ask()
        _ = handler.outbox.put([OutgoingRequest(request: large, exchange: nil)])
        _ = ask()
        channel.embeddedEventLoop.run()
        let all = try sent()
        #expect(all.count == 3 && all[1].utf8.count == large.body.readableBytes)
        #expect(all.joined() == "*1\r\n$1\r\n?\r\n*2\r\n\(String(buffer: large.body))*1\r\n$1\r\n?\r\n")
    }

    @Test func `what is asked on a connection that is gone fails, before and behind its end`() throws {
        let early = ask()
        channel.close(promise: nil)
        // The end of the connection sends what nobody has sent.
        #expect(early.reply.outcome == .failure(.connectionLost))
        // The handler may be there still.
        let late = ask()
        handler.sendAll()
        #expect(late.reply.outcome == .failure(.connectionLost))
    }

    @Test func `an idle connection keeps nothing of the last reply`() throws {
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        var buffer = ByteBuffer(string: "$5\r\nimage\r\n")
        #expect(try decoder.decode(buffer: &buffer) == .bulk(ByteBuffer(string: "image")))
        #expect(buffer.capacity == 0)
    }

    @Test func `behind the first wrong byte nothing is believed`() throws {
        let (first, second) = (ask(), ask())
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

    @Test func `a reply that came before the connection broke is had`() throws {
        let (first, second) = (ask(), ask())
        channel.embeddedEventLoop.run()
        // Without the end of the read, which the close comes before.
        channel.pipeline.fireChannelRead(ByteBuffer(string: "+there\r\n"))
        channel.close(promise: nil)
        channel.embeddedEventLoop.run()
        #expect(first.reply.outcome == .success(.simpleString("there")))
        #expect(second.reply.outcome == .failure(.connectionLost))
    }
}
