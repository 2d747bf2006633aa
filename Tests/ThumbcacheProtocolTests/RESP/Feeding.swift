import NIOCore
import TestSupport

@testable import ThumbcacheProtocol

/// The result of feeding bytes to a decoder.
struct Outcome<Message: Equatable>: Equatable {
    var messages: [Message] = []
    var error: ProtocolError?
    /// The bytes that were not consumed.
    var leftover = 0
}

/// Feeds bytes in pieces, and reads all requests after each.
func feed<Message: Equatable>(
    _ pieces: [ArraySlice<UInt8>], next: (inout ByteBuffer) throws(ProtocolError) -> Message?
) -> Outcome<Message> {
    var outcome = Outcome<Message>()
    var buffer = ByteBuffer()
    for piece in pieces {
        buffer.writeBytes(piece)
        do {
            while let message = try next(&buffer) { outcome.messages.append(message) }
        } catch {
            outcome.error = error
            return outcome
        }
        // A buffer that makes room moves the remaining bytes to its front.
        buffer.discardReadBytes()
    }
    outcome.leftover = buffer.readableBytes
    return outcome
}

func decodeRequests(
    _ pieces: [ArraySlice<UInt8>], limits: RequestLimits = RequestLimits()
) -> Outcome<[[UInt8]]> {
    var decoder = RequestDecoder(limits: limits)
    return feed(pieces) { buffer throws(ProtocolError) in
        try decoder.next(&buffer).map { request in (0..<request.count).map { Array(request[$0].readableBytesView) } }
    }
}

func decodeReplies(_ pieces: [ArraySlice<UInt8>], limit: Int = 1 << 20, depth: Int = 16) -> Outcome<Value> {
    feed(pieces) { buffer throws(ProtocolError) in try buffer.readReply(limit: limit, depth: depth) }
}

/// Ways to split bytes: whole, single bytes, and two parts at every position.
func cuts(of bytes: [UInt8]) -> [[ArraySlice<UInt8>]] {
    [[bytes[...]], bytes.indices.map { bytes[$0...$0] }] + bytes.indices.map { [bytes[..<$0], bytes[$0...]] }
}

extension String {
    var bytes: [UInt8] { Array(utf8) }
}

/// A request of random arguments, occasionally a long or large one.
func randomRequest(_ random: inout SeededRandom) -> [[UInt8]] {
    let count = Int.random(in: 1...10, using: &random) == 10 ? 40 : Int.random(in: 1...10, using: &random)
    return (0..<count).map { _ in
        let length = Int.random(in: 0...9, using: &random) == 9 ? 300 : Int.random(in: 0...12, using: &random)
        return (0..<length).map { _ in UInt8.random(in: 0...255, using: &random) }
    }
}

func encode(_ request: [[UInt8]]) -> [UInt8] {
    var buffer = ByteBuffer()
    buffer.writeRequest(request.map { ByteBuffer(bytes: $0) })
    return Array(buffer.readableBytesView)
}
