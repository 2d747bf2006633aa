import CacheCore
import Glibc
import ImageOptions
import LinuxSupport
import NIOCore

@testable import HelperProtocol

/// Messages between the daemon, the fetcher and the renderer, except the fetcher's reports (``FetcherReportFuzzer``).
/// Nothing may trap; an accepted message can be written and read again, and an accepted rendition is one that was
/// requested. Both ways to receive a message have the same result.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    let received = assembled(bytes)
    check(received.elementsEqual(blocking(bytes), by: ==), "the ways to receive messages differ")
    for (fields, body) in received { read(ByteBuffer(bytes: fields), body.count) }
    return 0
}

private let longestBody = 4_096
private typealias Received = [(fields: [UInt8], body: [UInt8])]

private func assembled(_ bytes: UnsafeRawBufferPointer) -> Received {
    var received: Received = []
    var assembler = MessageAssembler(maximumBody: longestBody)
    do throws(MessageError) {
        try assembler.receive(ByteBuffer(bytes: bytes)) { fields, body in
            let image = body.map { $0.buffer.readableBytesView.dropFirst(ImageBytes.Builder.headroom) }
            received.append((Array(fields.readableBytesView), image.map { Array($0) } ?? []))
        }
    } catch {
        check(!error.description.isEmpty, "an error has no reason")
    }
    return received
}

private func blocking(_ bytes: UnsafeRawBufferPointer) -> Received {
    var ends: [CInt] = [-1, -1]
    guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0 else { fatalError("socketpair") }
    defer { close(ends[0]) }
    guard bytes.isEmpty || Glibc.write(ends[1], bytes.baseAddress, bytes.count) == bytes.count else {
        fatalError("write")
    }
    close(ends[1])
    var received: Received = []
    let socket = MessageSocket(ends[0])
    do {
        while let (fields, body) = try socket.receive(maximumBody: longestBody, spareCapacity: 32) {
            received.append((Array(fields.readableBytesView), Array(body.readableBytesView)))
        }
    } catch {
        check(!"\(error)".isEmpty, "an error has no reason")
    }
    return received
}

private func read(_ fields: ByteBuffer, _ body: Int) {
    _ = try? WorkerGreeting(fields)
    if let limits = try? WorkerLimits(fields) { check(written(limits.write) == fields, "limits change") }
    if let request = try? RenderRequest(fields) {
        check(request.side > 0 && written { request.write(to: &$0, body: 0) } == fields, "a request changes")
    }
    for output: RenderOutput in [.pixels, .file(.png), .file(.source)] {
        let request = RenderRequest(number: 1, side: 8, fit: .contain, output: output)
        guard let reply = try? RenderReply(fields, body: body, to: request) else { continue }
        check(written { reply.write(to: &$0) } == fields, "a reply changes")
        check((reply.outcome == .rendered) == (body > 0), "a body without a rendition, or none with one")
        guard reply.outcome == .rendered else { continue }
        check(1...8 ~= reply.width && 1...8 ~= reply.height, "a rendition is larger than requested")
        check(output == .file(.source) || reply.output == output, "a rendition has another format")
        check(reply.output != .pixels || body == 4 * Int(reply.width) * Int(reply.height), "pixels are missing")
    }
    let origin = Origin(name: "o", url: "https://h/{profile}")
    guard let request = try? FetcherRequest(fields, origin: { $0 == "o" ? origin : nil }) else { return }
    // Sets have no order, so lengths are compared instead of bytes.
    check(written(request.write).readableBytes <= fields.readableBytes, "a request to the fetcher grows")
}

/// The fields of a message.
private func written(_ write: (inout ByteBuffer) -> Void) -> ByteBuffer {
    var message = ByteBuffer()
    write(&message)
    return message.getSlice(at: MessageHead.length, length: message.readableBytes - MessageHead.length) ?? ByteBuffer()
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
