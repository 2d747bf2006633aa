import NIOCore
import ThumbcacheProtocol

/// F22: whatever arrives, and however it is cut, is read or refused, never trapped on; and the cutting changes nothing.
///
/// The first byte says which decoder is meant, the second how the others are cut.
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
        let limits = RequestLimits(arguments: 20, argumentBytes: 500, frameBytes: 900)
        // With a line of 32 bytes at most before each argument and before all.
        let longest = limits.frameBytes + (limits.arguments + 1) * 32
        func decoded(_ pieces: [ArraySlice<UInt8>]) -> Decoded<[ByteBuffer]> {
            var decoder = RequestDecoder(limits: limits)
            return decode(pieces) { buffer throws(ProtocolError) in
                let request = try decoder.next(&buffer)
                check(decoder.missingBytes <= limits.argumentBytes + 2, "no more is asked for than the limit permits")
                check(
                    buffer.readableBytes <= longest || request != nil, "no frame is longer than the limit")
                guard let request else { return nil }
                parse(request)
                return (0..<request.count).map { request[$0] }
            }
        }
        let whole = decoded([bytes[...]])
        check(decoded(cut(bytes, seed)) == whole, "a request does not depend on how it was cut")
        for message in whole.messages { checkRoundTrip(message) }
    } else {
        func decoded(_ pieces: [ArraySlice<UInt8>]) -> Decoded<Value> {
            decode(pieces) { buffer throws(ProtocolError) in try buffer.readReply(limit: 2000, depth: 4) }
        }
        check(decoded(cut(bytes, seed)) == decoded([bytes[...]]), "a reply does not depend on how it was cut")
    }
}

/// Reading a command never traps, and what it says of a bad one is fit for one line of a reply.
private func parse(_ request: Request) {
    do throws(CommandError) {
        let command = try Command(request, limits: CommandLimits(id: 20, image: 300, token: 30))
        guard case .command(let query) = command else { return }
        _ = CommandTable().reply(to: query, version: .three)
    } catch {
        check(error.message.utf8.allSatisfy { 0x20...0x7E ~= $0 }, "an error is printable")
        check(error.message.utf8.count <= 300, "an error is short")
    }
}

private func checkRoundTrip(_ arguments: [ByteBuffer]) {
    var buffer = ByteBuffer()
    buffer.writeRequest(arguments)
    var decoder = RequestDecoder(limits: RequestLimits())
    let again = decode([Array(buffer.readableBytesView)[...]]) { buffer throws(ProtocolError) in
        try decoder.next(&buffer).map { request in (0..<request.count).map { request[$0] } }
    }
    check(again.messages == [arguments] && again.error == nil, "a request that is written can be read")
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
        check(error.message.utf8.allSatisfy { 0x20...0x7E ~= $0 }, "an error is printable")
        check(error.message.utf8.count <= 300, "an error is short")
        decoded.error = error
    }
    return decoded
}

/// Pieces of 1 to 16 bytes, as the seed has it; with seed 0 single bytes.
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
