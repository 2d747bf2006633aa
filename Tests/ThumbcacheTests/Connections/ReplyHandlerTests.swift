import NIOCore
import NIOEmbedded
import RESP
import Testing

@testable import Thumbcache

@Suite struct ReplyHandlerTests {
    private let channel: EmbeddedChannel

    init() throws {
        channel = EmbeddedChannel(handler: ReplyHandler(onPush: nil))
        try channel.connect(to: SocketAddress(unixDomainSocketPath: "/played")).wait()
    }

    private func ask(by seconds: Int64? = nil) -> Exchange {
        let exchange = Exchange(by: seconds.map { channel.eventLoop.now + .seconds($0) }) {}
        channel.writeAndFlush(OutgoingRequest(frame: ByteBuffer(string: "?"), exchange: exchange), promise: nil)
        return exchange
    }

    private func isResolved(_ exchanges: [Exchange]) -> [Bool] { exchanges.map(\.reply.isResolved) }

    @Test func `each wait ends at its own time, in whatever order they began`() throws {
        let all = [ask(by: 30), ask(), ask(by: 10), ask(by: 20)]
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
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        try channel.writeInbound(Value.simpleString("late"))
        try channel.writeInbound(Value.simpleString("next"))
        channel.pipeline.fireChannelReadComplete()
        #expect(late.reply.outcome == .failure(.timeout))
        #expect(next.reply.outcome == .success(.simpleString("next")))
    }

    @Test func `what is asked in one turn goes out together, and nothing stays behind`() throws {
        for _ in 0..<3 { _ = ask() }
        #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
        channel.embeddedEventLoop.run()
        for _ in 0..<3 { #expect(try channel.readOutbound(as: ByteBuffer.self) != nil) }
        _ = ask()
        channel.embeddedEventLoop.run()
        #expect(try channel.readOutbound(as: ByteBuffer.self) != nil)
    }

    @Test func `a reply that came before the connection broke is had`() throws {
        let (first, second) = (ask(), ask())
        try channel.writeInbound(Value.simpleString("there"))
        channel.close(promise: nil)
        channel.embeddedEventLoop.run()
        #expect(first.reply.outcome == .success(.simpleString("there")))
        #expect(second.reply.outcome == .failure(.connectionLost))
    }
}
