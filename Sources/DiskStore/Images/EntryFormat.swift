import CacheCore

/// An entry file: the header below, the image and then its record sealed as one text, and the tag.
///
///     0  "TCE" and the format's version
///     4  length of the record
///     8  length of the image
///     12 nonce
///     24 image, record, tag of 16 bytes
///
/// The header is as long as the room that ``CacheCore/ImageBytes/Builder`` keeps before an image, and the record
/// stands behind the image: so one read fills the buffer that is later sent, and the image is opened where it lies.
package struct EntryHeader: Equatable {
    package static let size = 24
    /// Where the box of nonce, text and tag begins.
    static let boxStart = size - EntryCipher.nonceLength
    /// Bytes that an entry has beyond its image and record.
    static let overhead = size + EntryCipher.tagLength
    static let version: UInt8 = 1
    /// "TCE" and the version, as one number.
    private static var magic: UInt32 { 0x5443_4500 | UInt32(version) }

    package var recordLength: Int
    package var imageLength: Int
}

extension EntryHeader {
    /// nil unless the bytes are a header of this format whose lengths make a file of `fileSize` bytes.
    package init?(_ bytes: UnsafeRawBufferPointer, fileSize: Int) {
        var reader = ByteReader(bytes)
        guard reader.integer(UInt32.self) == Self.magic,
            let record = reader.integer(UInt32.self), let image = reader.integer(UInt32.self),
            Int(record) + Int(image) + Self.overhead == fileSize
        else { return nil }
        recordLength = Int(record)
        imageLength = Int(image)
    }

    /// Writes what stands before the nonce. It is bound too: it says where the image ends and the record begins.
    func write(to buffer: UnsafeMutableRawBufferPointer) {
        buffer.storeBytes(of: Self.magic.bigEndian, as: UInt32.self)
        buffer.storeBytes(of: UInt32(recordLength).bigEndian, toByteOffset: 4, as: UInt32.self)
        buffer.storeBytes(of: UInt32(imageLength).bigEndian, toByteOffset: 8, as: UInt32.self)
    }

    /// What the tag of an entry binds beside its contents (F12): the header, then whose it is and where it lies.
    func withBound<Result>(
        of owner: [UInt8], at address: EntryAddress, _ body: (UnsafeRawBufferPointer) throws -> Result
    ) rethrows -> Result {
        try withUnsafeTemporaryAllocation(byteCount: 12 + owner.count + 34, alignment: 8) { bound in
            write(to: bound)
            UnsafeMutableRawBufferPointer(rebasing: bound[12...]).copyBytes(from: owner)
            let rest = UnsafeMutableRawBufferPointer(rebasing: bound[(12 + owner.count)...])
            address.profile.write(to: rest)
            rest.storeBytes(of: address.code.bigEndian, toByteOffset: 32, as: UInt16.self)
            return try body(UnsafeRawBufferPointer(bound))
        }
    }

    /// Opens and verifies an entry where it lies. Nil when anything about it is not as it was sealed (I5).
    /// - Parameter owner: ``owner(of:)``.
    static func open(
        _ entry: UnsafeMutableRawBufferPointer, of owner: [UInt8], at address: EntryAddress, with cipher: EntryCipher
    ) -> (HeldRecord, imageLength: Int)? {
        guard let header = EntryHeader(UnsafeRawBufferPointer(entry), fileSize: entry.count) else { return nil }
        let opened = header.withBound(of: owner, at: address) { bound in
            cipher.open(UnsafeMutableRawBufferPointer(rebasing: entry[boxStart...]), bound: bound)
        }
        guard let opened else { return nil }
        let record = ImageRecordCoding.decode(UnsafeRawBufferPointer(rebasing: opened[header.imageLength...]))
        return record.map { (HeldRecord($0), header.imageLength) }
    }

    /// The part of it that all entries of a generation share.
    static func owner(of generation: Generation) -> [UInt8] {
        var writer = ByteWriter(capacity: 52)
        writer.integer(generation.owner.uid)
        writer.append(generation.owner.user.bytes)
        writer.append(generation.id.bytes)
        return writer.bytes
    }
}
