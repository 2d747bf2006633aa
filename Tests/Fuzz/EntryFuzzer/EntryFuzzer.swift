import CacheCore
import DiskStore

/// Decodes all file formats of the store from untrusted bytes. Decoded values must encode to the same bytes, except for
/// the version, where an encoder needs no key. Nothing may trap.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = UnsafeRawBufferPointer(start: start, count: count)
    if let record = ImageRecordCoding.decode(bytes), let encoded = ImageRecordCoding.encode(record) {
        // Encoding drops only overlong header fields, and writes the newest version.
        let isShorter = encoded.count < bytes.count
        let isSame = encoded.dropFirst().elementsEqual(bytes.dropFirst())
        precondition(isShorter || isSame, "a record encodes to other bytes")
    }
    if let header = EntryHeader(bytes, fileSize: count) {
        precondition(header.imageLength >= 0 && header.recordLength >= 0, "a length is negative")
        precondition(header.imageLength + header.recordLength < count, "a length is beyond the file")
    }
    _ = SessionRecord(bytes)
    _ = KeyFile(bytes) { _, check in
        // A fixed check value, so that the fuzzer can pass the check.
        check.initializeMemory(as: UInt8.self, repeating: 0)
    }
    StoreFileNames.read(bytes)
    return 0
}
