import CacheCore
import DiskStore

/// Feeds the decoders of everything that the store reads from disk with bytes that anybody may have written. What
/// decodes must encode to the same bytes again, but for the version, where there is an encoder without a key; nothing
/// may trap.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    if let record = ImageRecordCoding.decode(bytes), let encoded = ImageRecordCoding.encode(record) {
        // Only overlong header fields are dropped on the way back, and the version, which comes first, is always the
        // newest.
        let isShorter = encoded.count < bytes.count
        let isSame = encoded.dropFirst().elementsEqual(bytes.dropFirst())
        precondition(isShorter || isSame, "a record does not encode to what it was read from")
    }
    if let header = EntryHeader(bytes, fileSize: count) {
        precondition(header.imageLength >= 0 && header.recordLength >= 0, "a length is negative")
        precondition(header.imageLength + header.recordLength < count, "a length is beyond the file")
    }
    _ = SessionRecord(bytes)
    _ = KeyFile(bytes) { _, check in
        // A check value that the fuzzer can hit, so that it gets past it.
        check.initializeMemory(as: UInt8.self, repeating: 0)
    }
    StoreFileNames.read(bytes)
    return 0
}
