import CacheCore

/// The header of an entry file.
///
///     0  "TCE", format version
///     4  length of the record
///     8  length of the image
///     12 nonce
///     24 image and record, encrypted together; tag of 16 bytes
///
/// The header has the size of the headroom of ``CacheCore/ImageBytes/Builder``, so that one read fills the buffer that
/// is sent, and decryption happens in place.
package struct EntryHeader: Equatable {
    package static let size = 24
    static let sealedStart = size - EntryCipher.nonceLength
    /// Bytes of an entry in addition to image and record.
    static let overhead = size + EntryCipher.tagLength
    static let version: UInt8 = 1
    /// "TCE" and the version as one number.
    private static var magic: UInt32 { 0x5443_4500 | UInt32(version) }

    package var recordLength: Int
    package var imageLength: Int
}

extension EntryHeader {
    /// Nil unless the format is known and the lengths add up to `fileSize` bytes.
    package init?(_ bytes: UnsafeRawBufferPointer, fileSize: Int) {
        var reader = ByteReader(bytes)
        guard reader.integer(UInt32.self) == Self.magic,
            let record = reader.integer(UInt32.self), let image = reader.integer(UInt32.self),
            Int(record) + Int(image) + Self.overhead == fileSize
        else { return nil }
        recordLength = Int(record)
        imageLength = Int(image)
    }

    func write(to buffer: UnsafeMutableRawBufferPointer) {
        buffer.storeBytes(of: Self.magic.bigEndian, as: UInt32.self)
        buffer.storeBytes(of: UInt32(recordLength).bigEndian, toByteOffset: 4, as: UInt32.self)
        buffer.storeBytes(of: UInt32(imageLength).bigEndian, toByteOffset: 8, as: UInt32.self)
    }

    /// Calls `body` with the additional authenticated data of an entry (F12): header fields, owner and address.
    func withAuthenticatedData<Result>(
        of owner: [UInt8], at address: EntryAddress, _ body: (UnsafeRawBufferPointer) throws -> Result
    ) rethrows -> Result {
        try withUnsafeTemporaryAllocation(byteCount: 12 + owner.count + 34, alignment: 8) { authenticated in
            write(to: authenticated)
            UnsafeMutableRawBufferPointer(rebasing: authenticated[12...]).copyBytes(from: owner)
            let rest = UnsafeMutableRawBufferPointer(rebasing: authenticated[(12 + owner.count)...])
            address.profile.write(to: rest)
            rest.storeBytes(of: address.code.bigEndian, toByteOffset: 32, as: UInt16.self)
            return try body(UnsafeRawBufferPointer(authenticated))
        }
    }

    /// Decrypts an entry in place. Returns nil unless it is exactly as written (I5).
    /// - Parameters:
    ///   - owner: ``owner(of:)``.
    ///   - known: the record from an earlier read of the entry. It is decoded again if the tag is another.
    static func open(
        _ entry: UnsafeMutableRawBufferPointer, of owner: [UInt8], at address: EntryAddress, with cipher: EntryCipher,
        known: SealedRecord? = nil
    ) -> (SealedRecord, imageLength: Int)? {
        guard let header = EntryHeader(UnsafeRawBufferPointer(entry), fileSize: entry.count) else { return nil }
        let opened = header.withAuthenticatedData(of: owner, at: address) { authenticated in
            cipher.open(UnsafeMutableRawBufferPointer(rebasing: entry[sealedStart...]), authenticating: authenticated)
        }
        guard let opened else { return nil }
        let tag = entry.loadUnaligned(fromByteOffset: entry.count - EntryCipher.tagLength, as: SealedRecord.Tag.self)
        if let known, known.tag == tag { return (known, header.imageLength) }
        let record = ImageRecordCoding.decode(UnsafeRawBufferPointer(rebasing: opened[header.imageLength...]))
        return record.map { (SealedRecord(record: SharedRecord($0), tag: tag), header.imageLength) }
    }

    /// The part of the authenticated data that all entries of a generation share.
    static func owner(of generation: Generation) -> [UInt8] {
        var writer = ByteWriter(capacity: 52)
        writer.integer(generation.owner.uid)
        writer.append(generation.owner.user.bytes)
        writer.append(generation.id.bytes)
        return writer.bytes
    }
}
