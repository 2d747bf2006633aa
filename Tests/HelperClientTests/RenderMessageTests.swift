import ImageOptions
import NIOCore
import Testing

@testable import HelperProtocol

/// Messages between the daemon and the workers of the renderer.
@Suite struct RenderMessageTests {
    private static let request = RenderRequest(number: 7, side: 3, fit: .contain, output: .pixels)

    private func fields(_ write: (inout ByteBuffer) -> Void) -> ByteBuffer {
        var buffer = ByteBuffer()
        write(&buffer)
        buffer.moveReaderIndex(forwardBy: MessageHead.length)
        return buffer
    }

    private func read(_ reply: RenderReply, body: Int, to request: RenderRequest = request) throws -> RenderReply {
        try RenderReply(fields { reply.write(to: &$0, body: body) }, body: body, to: request)
    }

    @Test func `messages are the same after they are written and read`() throws {
        #expect(try RenderRequest(fields { Self.request.write(to: &$0, body: 5) }) == Self.request)
        let limits = WorkerLimits(pixels: 9)
        #expect(try WorkerLimits(fields { limits.write(to: &$0) }) == limits)
        #expect(try WorkerGreeting(fields { WorkerGreeting().write(to: &$0) }) == WorkerGreeting())
        let reply = RenderReply(number: 7, outcome: .rendered, output: .pixels, width: 3, height: 2)
        #expect(try read(reply, body: 24) == reply)
        let failure = RenderReply(number: 7, outcome: .tooManyPixels)
        #expect(try read(failure, body: 0) == failure)
    }

    @Test func `I8: a reply whose body does not fit its pixels is invalid`() {
        let reply = RenderReply(number: 7, outcome: .rendered, output: .pixels, width: 3, height: 2)
        for body in [0, 23, 25] { #expect(throws: MessageError.self) { try read(reply, body: body) } }
    }

    @Test(arguments: [
        RenderReply(number: 8, outcome: .rendered, output: .pixels, width: 3, height: 2),
        RenderReply(number: 7, outcome: .rendered, output: .file(.png), width: 3, height: 2),
        RenderReply(number: 7, outcome: .rendered, output: .pixels, width: 6, height: 1),
        RenderReply(number: 7, outcome: .broken, output: .pixels, width: 3, height: 2),
    ])
    func `I8: a reply that does not fit its request is invalid`(_ reply: RenderReply) {
        #expect(throws: MessageError.self) { try read(reply, body: 24) }
    }

    @Test func `a rendition in the format of its source names that format`() throws {
        let request = RenderRequest(number: 7, side: 3, fit: .cover, output: .file(.source))
        let reply = RenderReply(number: 7, outcome: .rendered, output: .file(.webp), width: 3, height: 3)
        #expect(try read(reply, body: 9, to: request) == reply)
        let unnamed = RenderReply(number: 7, outcome: .rendered, output: .file(.source), width: 3, height: 3)
        #expect(throws: MessageError.self) { try read(unnamed, body: 9, to: request) }
    }

    @Test func `I8: a truncated request, and one with a trailing byte, is invalid`() throws {
        var whole = fields { Self.request.write(to: &$0, body: 5) }
        for count in 0..<whole.readableBytes {
            let part = try #require(whole.getSlice(at: whole.readerIndex, length: count))
            #expect(throws: MessageError.self) { try RenderRequest(part) }
        }
        whole.writeInteger(UInt8(0))
        #expect(throws: MessageError.self) { try RenderRequest(whole) }
    }
}
