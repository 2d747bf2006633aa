import CacheCore
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

@testable import HelperProtocol

/// I8, I11: no bytes from a fetcher trap, and each accepted message is within bounds and can be written and read again.
/// The first byte of the input is the size of the pieces in which the rest is received.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    var bytes = ByteBuffer(bytes: UnsafeRawBufferPointer(start: start, count: count))
    guard let first = bytes.readInteger(as: UInt8.self) else { return 0 }
    var assembler = MessageAssembler(maximumBody: 4_096)
    do throws(MessageError) {
        while let piece = bytes.readSlice(length: min(Int(first) + 1, bytes.readableBytes)), piece.readableBytes > 0 {
            try assembler.receive(piece) { fields, body throws(MessageError) in
                check(body.map { $0.count <= 4_096 } ?? true, "a body is too long")
                try check(FetcherReport(fields))
            }
        }
    } catch {
        check(!error.description.isEmpty, "an error has no reason")
    }
    return 0
}

private func check(_ report: FetcherReport) throws(MessageError) {
    // Dictionaries have no order, so lengths are compared instead of bytes.
    var (once, twice) = (ByteBuffer(), ByteBuffer())
    report.write(to: &once)
    let fields = once.getSlice(at: MessageHead.length, length: once.readableBytes - MessageHead.length)
    try FetcherReport(fields ?? ByteBuffer()).write(to: &twice)
    check(once.readableBytes == twice.readableBytes, "a message changes when it is written and read")
    switch report {
    case .failed(_, let failure), .unusable(_, _, let failure):
        check("\(failure)".unicodeScalars.allSatisfy(\.isVisible), "an error message has invisible characters")
    case .statistics(_, let statistics):
        for origin in statistics.origins.values {
            check(origin.longestRetryIn < 1 << 31 && origin.retryIn < 1 << 31, "a duration is not capped")
        }
    case .checked(_, let refusal?):
        check((refusal.retryIn ?? 0) <= FetcherReport.maximumRetry, "a duration is not capped")
        check("\(refusal.failure)".unicodeScalars.allSatisfy(\.isVisible), "an error message has invisible characters")
    case .image, .missing, .notModified, .token, .checked(_, nil), .pong: break
    }
}

private func check(_ isTrue: Bool, _ claim: StaticString) {
    if !isTrue { fatalError("\(claim)") }
}
