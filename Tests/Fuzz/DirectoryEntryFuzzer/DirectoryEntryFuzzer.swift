import CacheCore
import NIOCore

@testable import ImageFetcher

/// Reads the text of untrusted directory entries. Nothing may trap, no image may exceed the limit, and the size of the
/// pieces must not matter.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    precondition(read(bytes, count) == read(bytes, 1), "the result depends on the pieces")
    return 0
}

private func read(_ bytes: UnsafeRawBufferPointer, _ length: Int) -> [UInt8]? {
    let limit = 1_024
    var reader = DirectoryEntryReader(host: "h", attribute: "jpegPhoto", framing: .bare, limit: limit)
    var rest = bytes[...]
    while !rest.isEmpty {
        // In a separate allocation, as from libcurl, so that reads past the end are detected.
        let piece = Array(rest.prefix(length))
        guard piece.withUnsafeBytes({ reader.receive($0) }) else { break }
        rest = rest.dropFirst(length)
    }
    guard case .image(let image)? = reader.verdict(isWhole: true) else { return nil }
    precondition(1...limit ~= image.count, "an image is empty or over the limit")
    return Array(image.image.readableBytesView)
}
