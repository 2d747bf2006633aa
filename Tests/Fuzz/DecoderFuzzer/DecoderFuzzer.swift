import NIOCore
import ThumbcacheProtocol

/// F22: any input, split anywhere, is decoded or rejected without a trap, and splitting does not change the result.
///
/// The first byte selects the decoder, the second how the rest is split.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    testOne(UnsafeBufferPointer(start: start, count: count))
    return 0
}

private func testOne(_ input: UnsafeBufferPointer<UInt8>) {
    guard input.count > 2 else { return }
    let bytes = Array(input.dropFirst(2))
    let seed = input[1]
    if input[0] & 1 == 0 {
        let limits = RequestLimits(arguments: 20, payloadBytes: 900, argument: 500)
        // With a line of at most 32 bytes before the array and before each argument.
        let longest = limits.payloadBytes + (limits.arguments + 1) * 32
        func decoded(_ pieces: [ArraySlice<UInt8>]) -> Decoded<[ByteBuffer]> {
            var decoder = RequestDecoder(limits: limits)
            return decode(pieces) { buffer throws(ProtocolError) in
                let request = try decoder.next(&buffer)
                check(decoder.missingBytes <= 500 + 2, "missing bytes exceed the limit")
                check(
                    buffer.readableBytes <= longest || request != nil, "a frame is longer than the limit")
                guard let request else { return nil }
                parse(request)
                return (0..<request.count).map { request[$0] }
            }
        }
        let whole = decoded([bytes[...]])
        check(decoded(cut(bytes, seed)) == whole, "splitting changes a request")
        for message in whole.messages { checkRoundTrip(message) }
    } else {
        func decoded(_ pieces: [ArraySlice<UInt8>]) -> Decoded<Value> {
            decode(pieces) { buffer throws(ProtocolError) in try buffer.readReply(limit: 2000, depth: 4) }
        }
        check(decoded(cut(bytes, seed)) == decoded([bytes[...]]), "splitting changes a reply")
    }
}

/// Parsing never traps, and its error fits on one line of a reply.
private func parse(_ request: Request) {
    do throws(CommandError) {
        let command = try Command(request, limits: RequestLimits(id: 20, image: 300, token: 30))
        guard case .command(let query) = command else { return }
        _ = CommandTable().reply(to: query, version: .three)
    } catch {
        check(error.message.utf8.allSatisfy { 0x20...0x7E ~= $0 }, "an error has unprintable characters")
        check(error.message.utf8.count <= 300, "an error is too long")
    }
}

private func checkRoundTrip(_ arguments: [ByteBuffer]) {
    var buffer = ByteBuffer()
    buffer.writeRequest(arguments)
    var decoder = RequestDecoder(limits: RequestLimits())
    let again = decode([Array(buffer.readableBytesView)[...]]) { buffer throws(ProtocolError) in
        try decoder.next(&buffer).map { request in (0..<request.count).map { request[$0] } }
    }
    check(again.messages == [arguments] && again.error == nil, "a written request cannot be read")
}

private struct Decoded<Message: Equatable>: Equatable {
    var messages: [Message] = []
    var error: ProtocolError?
}

private func decode<Message: Equatable>(
    _ pieces: [ArraySlice<UInt8>], next: (inout ByteBuffer) throws(ProtocolError) -> Message?
) -> Decoded<Message> {
    var decoded = Decoded<Message>()
    var buffer = ByteBuffer()
    do throws(ProtocolError) {
        for piece in pieces {
            buffer.writeBytes(piece)
            while let message = try next(&buffer) { decoded.messages.append(message) }
            buffer.discardReadBytes()
        }
    } catch {
        check(error.message.utf8.allSatisfy { 0x20...0x7E ~= $0 }, "an error has unprintable characters")
        check(error.message.utf8.count <= 300, "an error is too long")
        decoded.error = error
    }
    return decoded
}

/// Pieces of 1 to 16 bytes determined by the seed; single bytes for seed 0.
private func cut(_ bytes: [UInt8], _ seed: UInt8) -> [ArraySlice<UInt8>] {
    var pieces: [ArraySlice<UInt8>] = []
    var start = 0
    var state = UInt32(seed)
    while start < bytes.count {
        state = state &* 1_664_525 &+ (seed == 0 ? 0 : 1_013_904_223)
        let end = min(bytes.count, start + 1 + Int(state >> 28))
        pieces.append(bytes[start..<end])
        start = end
    }
    return pieces
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
