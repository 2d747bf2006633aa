import NIOCore

@testable import ThumbcacheProtocol

/// What came of feeding bytes to a decoder.
struct Outcome<Message: Equatable>: Equatable {
    var messages: [Message] = []
    var error: ProtocolError?
    /// Bytes that were left untaken when no more came.
    var leftover = 0
}

/// Feeds bytes in pieces, and takes after each what the decoder gives.
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
        // A reader that makes room moves what is left to the front.
        buffer.discardReadBytes()
    }
    outcome.leftover = buffer.readableBytes
    return outcome
}

func decodeRequests(
    _ pieces: [ArraySlice<UInt8>], limits: RequestLimits = RequestLimits(argumentBytes: 5 << 20)
) -> Outcome<[[UInt8]]> {
    var decoder = RequestDecoder(limits: limits)
    return feed(pieces) { buffer throws(ProtocolError) in
        try decoder.next(&buffer).map { request in (0..<request.count).map { Array(request[$0].readableBytesView) } }
    }
}

func decodeReplies(_ pieces: [ArraySlice<UInt8>], limit: Int = 1 << 20, depth: Int = 16) -> Outcome<Value> {
    feed(pieces) { buffer throws(ProtocolError) in try buffer.readReply(limit: limit, depth: depth) }
}

/// The ways to cut bytes: not at all, into single bytes, and in two at every place.
func cuts(of bytes: [UInt8]) -> [[ArraySlice<UInt8>]] {
    [[bytes[...]], bytes.indices.map { bytes[$0...$0] }] + bytes.indices.map { [bytes[..<$0], bytes[$0...]] }
}

extension String {
    var bytes: [UInt8] { Array(utf8) }
}

/// Numbers that look random and are the same in every run.
struct SplitMix: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
    }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ (word >> 30)) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ (word >> 27)) &* 0x94D0_49BB_1331_11EB
        return word ^ (word >> 31)
    }
}

/// A request of random arguments, now and then one that is long or one of many.
func randomRequest(_ random: inout SplitMix) -> [[UInt8]] {
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
