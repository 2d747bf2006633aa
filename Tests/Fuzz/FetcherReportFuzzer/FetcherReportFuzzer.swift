import CacheCore
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

@testable import HelperProtocol

/// I8, I11: whatever a fetcher that somebody has broken into says, nothing traps, and what is taken for a message is
/// within bounds and written the same again. The first byte says in which pieces the rest comes.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    var bytes = ByteBuffer(bytes: UnsafeRawBufferPointer(start: start, count: count))
    guard let first = bytes.readInteger(as: UInt8.self) else { return 0 }
    var assembler = MessageAssembler(longestBody: 4_096)
    do throws(MessageError) {
        while let piece = bytes.readSlice(length: min(Int(first) + 1, bytes.readableBytes)), piece.readableBytes > 0 {
            try assembler.receive(piece) { fields, body throws(MessageError) in
                check(body.map { $0.count <= 4_096 } ?? true, "a body is too long")
                try check(FetcherReport(fields))
            }
        }
    } catch {
        check(!error.description.isEmpty, "it is refused without a reason")
    }
    return 0
}

private func check(_ report: FetcherReport) throws(MessageError) {
    // The same bytes once more: dictionaries have no order, so that lengths are compared.
    var (once, twice) = (ByteBuffer(), ByteBuffer())
    report.write(to: &once)
    let fields = once.getSlice(at: MessageWriter.headLength, length: once.readableBytes - MessageWriter.headLength)
    try FetcherReport(fields ?? ByteBuffer()).write(to: &twice)
    check(once.readableBytes == twice.readableBytes, "it is read as something else when it is written")
    switch report {
    case .failed(_, let failure), .unusable(_, _, let failure):
        check("\(failure)".unicodeScalars.allSatisfy(\.isVisible), "a sentence has characters that do not show")
    case .statistics(_, let figures):
        for origin in figures.origins.values {
            check(origin.longestRetryIn < 1 << 31 && origin.retryIn < 1 << 31, "a duration is not capped")
        }
    case .image, .missing, .notModified, .token, .alive: break
    }
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
