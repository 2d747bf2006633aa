import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOHTTPTypes
import Testing

@testable import thumbcached_oidc

@Suite struct ConnectionGuardTests {
    private let times = ConnectionGuard.Times(request: .seconds(10), answer: .seconds(20), close: .seconds(2))
    private let head = HTTPRequestPart.head(
        HTTPRequest(method: .post, scheme: "http", authority: "a", path: "/backchannel-logout"))

    private func connection(_ table: ConnectionTable = ConnectionTable(limit: 10)) throws -> EmbeddedChannel {
        let channel = EmbeddedChannel(handler: ConnectionGuard(times, table: table))
        try channel.connect(to: SocketAddress(unixDomainSocketPath: "/x")).wait()
        return channel
    }

    private func advance(_ channel: EmbeddedChannel, _ time: TimeAmount) {
        channel.embeddedEventLoop.advanceTime(by: time)
    }

    @Test func `F84: a request must be complete within the request time`() throws {
        let channel = try connection()
        try channel.writeInbound(head)
        for _ in 0..<9 {
            advance(channel, .seconds(1))
            try channel.writeInbound(HTTPRequestPart.body(ByteBuffer(string: "x")))
        }
        advance(channel, .milliseconds(999))
        #expect(channel.isActive)
        advance(channel, .milliseconds(1))
        #expect(!channel.isActive)
        // Also on a connection without any data, such as one before the TLS handshake.
        let silent = try connection()
        advance(silent, .seconds(10))
        #expect(!silent.isActive)
    }

    @Test func `a response has its own time limit, and the peer some time to close`() throws {
        let channel = try connection()
        try channel.writeInbound(head)
        try channel.writeInbound(HTTPRequestPart.end(nil))
        advance(channel, .seconds(19))
        #expect(channel.isActive)
        try channel.writeOutbound(HTTPResponsePart.head(Reply.done.head))
        try channel.writeOutbound(HTTPResponsePart.end(nil))
        advance(channel, .milliseconds(1_999))
        advance(channel, .milliseconds(1))
        #expect(!channel.isActive)
    }

    @Test func `data after a request is ignored`() throws {
        let channel = try connection()
        try channel.writeInbound(head)
        try channel.writeInbound(HTTPRequestPart.end(nil))
        try channel.writeInbound(head)
        channel.pipeline.fireErrorCaught(HTTPParserError.invalidMethod)
        var parts: [HTTPRequestPart] = []
        while let part = try channel.readInbound(as: HTTPRequestPart.self) { parts.append(part) }
        #expect(parts == [head, .end(nil)])
        #expect(try channel.readOutbound(as: HTTPResponsePart.self) == nil)
        advance(channel, .seconds(20))
        #expect(!channel.isActive)
    }

    @Test func `invalid HTTP and large headers are answered with an error, and no other response follows`() throws {
        for (error, status) in [(HTTPParserError.invalidMethod, 400), (.headerOverflow, 431)] {
            let channel = try connection()
            channel.pipeline.fireErrorCaught(error)
            guard case .head(let head)? = try channel.readOutbound(as: HTTPResponsePart.self) else {
                Issue.record("no response")
                return
            }
            #expect(head.status.code == status)
            #expect(head.headerFields[.cacheControl] == "no-store")
            #expect(throws: ChannelError.outputClosed) {
                try channel.writeOutbound(HTTPResponsePart.head(Reply.done.head))
            }
        }
    }

    @Test func `Expect: 100-continue is answered immediately`() throws {
        let channel = try connection()
        var request = HTTPRequest(method: .post, scheme: "http", authority: "a", path: "/")
        request.headerFields[.expect] = "100-continue"
        try channel.writeInbound(HTTPRequestPart.head(request))
        #expect(try channel.readOutbound(as: HTTPResponsePart.self) == .head(HTTPResponse(status: .continue)))
        #expect(channel.isActive)
    }

    @Test func `F84: a connection is in the table while it is open, and idle until its request is complete`() throws {
        let table = ConnectionTable(limit: 2)
        let one = try connection(table)
        #expect(table.count == 1 && table.isAccepting)
        try one.writeInbound(head)
        #expect(table.isAccepting)
        try one.writeInbound(HTTPRequestPart.end(nil))
        #expect(!table.isAccepting)
        let other = try connection(table)
        let third = try connection(table)
        #expect(one.isActive && !other.isActive && third.isActive)
        try one.writeOutbound(HTTPResponsePart.head(Reply.done.head))
        try one.writeOutbound(HTTPResponsePart.end(nil))
        #expect(table.isAccepting)
        advance(one, .seconds(2))
        advance(third, .seconds(10))
        #expect(table.count == 0)
    }
}
