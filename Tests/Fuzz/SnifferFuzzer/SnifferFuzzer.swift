import NIOCore
import ThumbnailCache

/// F38: whatever a stranger calls an image, the sniffer answers or refuses: it never traps, and never lets a
/// dimension through that is zero or over the limit.
@_cdecl("LLVMFuzzerTestOneInput")
public func sniffOne(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = ByteBuffer(bytes: UnsafeRawBufferPointer(start: start, count: count))
    do throws(ImageRefusal) {
        let shape = try ImageSniffer.sniff(bytes, maximumDimension: 8192)
        precondition((1...8192).contains(shape.width) && (1...8192).contains(shape.height))
    } catch {
        precondition(!error.reason.isEmpty)
    }
    return 0
}

@_silgen_name("LLVMFuzzerRunDriver")
func runDriver(
    _ count: UnsafeMutablePointer<CInt>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?>,
    _ one: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt
) -> CInt

/// SwiftPM gives the `main` of an executable target this name and calls it from the real one.
@_cdecl("SnifferFuzzer_main")
public func start(_ count: CInt, _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?) -> CInt {
    var count = count
    var arguments = arguments
    return runDriver(&count, &arguments, sniffOne)
}
