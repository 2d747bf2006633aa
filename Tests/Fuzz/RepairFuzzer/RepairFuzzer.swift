import NIOCore

@testable import thumbcached_renderer

/// I8: the renderer's worker changes any image before it is decoded without a trap, appends no more than it reserved
/// room for, and changes the bytes before that of AVIF files only.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let source = ByteBuffer(bytes: UnsafeRawBufferPointer(start: start, count: count))
    // Not at the start of its buffer.
    var image = ByteBuffer(bytes: [1, 2, 3])
    image.writeImmutableBuffer(source)
    image.moveReaderIndex(forwardBy: 3)
    image.repairImage()
    precondition(image.readableBytes <= count + ByteBuffer.roomForRepair, "the image has grown too much")
    let common = min(count, image.readableBytes)
    let isAVIF = count >= 8 && source.getString(at: 4, length: 4) == "ftyp"
    let isGIF = count >= 4 && source.getString(at: 0, length: 4) == "GIF8"
    if isAVIF {
        precondition(image.readableBytes == count, "the size of an AVIF file changes")
    } else if !isGIF {
        precondition(image.readableBytesView.prefix(common).elementsEqual(source.readableBytesView.prefix(common)))
    }
    return 0
}
