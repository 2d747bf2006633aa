import CacheCore
import NIOCore

/// F38: the sniffer accepts or rejects any input without a trap, and never accepts a dimension of zero or over the
/// limit.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = ByteBuffer(bytes: UnsafeRawBufferPointer(start: start, count: count))
    do throws(ImageRefusal) {
        let shape = try ImageSniffer.sniff(bytes, maximumDimension: 8192)
        precondition((1...8192).contains(shape.width) && (1...8192).contains(shape.height))
    } catch {
        precondition(!error.reason.isEmpty)
    }
    return 0
}
