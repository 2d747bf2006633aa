import CacheCore
import LinuxSupport
import NIOCore

extension DiskGenerationStore {
    /// How often a read is retried if the file is replaced meanwhile; then it is a miss.
    private static let maximumAttempts = 4

    /// Reads an entry and decrypts it in the buffer that is sent. Costs openat, fstat, pread and close, and a
    /// buffer of ``ImageFiles/buffers``.
    /// - Parameter isUse: whether the use is recorded and an invalid entry removed.
    func read(
        _ address: EntryAddress, with cipher: EntryCipher, framing: ReplyFraming, isUse: Bool = true
    ) throws -> Image? {
        guard let bucket = try files.existingDirectory(of: generation, bucket: address.bucket) else { return nil }
        for _ in 0..<Self.maximumAttempts {
            do {
                let file = try files.disk.open(address.fileName, in: bucket, for: .reading)
                let status = try file.status()
                // The file was replaced or removed after it was opened.
                if status.linkCount == 0 { continue }
                if let image = try read(file, status, at: address, with: cipher, framing: framing) {
                    if isUse { recordUse(of: file, status) }
                    return image
                }
                if isUse { files.reject(address, status: status, in: generation) }
            } catch {
                if error.isMissing { return nil }
                guard error.isWrongKind || error.isDenied else { throw error }
                if isUse { files.reject(address, status: nil, in: generation) }
            }
            return nil
        }
        return nil
    }

    /// Returns nil if the entry is torn, altered, not written by the store, or unreadable.
    func read(
        _ file: borrowing OpenFile, _ status: FileStatus, at address: EntryAddress, with cipher: EntryCipher,
        framing: ReplyFraming
    ) throws(SystemError) -> Image? {
        guard canBeEntry(status) else { return nil }
        do throws(SystemError) {
            return try image(in: file, of: Int(status.size), at: address, with: cipher, framing: framing) {
                file, buffer throws(SystemError) in
                try file.read(into: buffer)
            }?.image
        } catch {
            // An unreadable sector is a torn entry (F6). Other errors, such as ENOMEM, do not concern the entry.
            if error.isMediumError { return nil }
            throw error
        }
    }

    func canBeEntry(_ status: FileStatus) -> Bool {
        status.kind == .file && status.linkCount == 1 && status.size >= EntryHeader.overhead
            && status.size <= files.costs.maximumEntry
    }

    /// Reads an entry of `size` bytes into the buffer that is sent, and decrypts it there. Nil if the read was short or
    /// the entry is invalid (I5).
    /// - Parameter known: see ``EntryHeader/open(_:of:at:with:known:)``.
    func image(
        in file: borrowing OpenFile, of size: Int, at address: EntryAddress, known: SealedRecord? = nil,
        with cipher: EntryCipher, framing: ReplyFraming,
        read: (borrowing OpenFile, UnsafeMutableRawBufferPointer) throws(SystemError) -> Int
    ) throws(SystemError) -> (image: Image, sealed: SealedRecord)? {
        // The header uses the space before the image that later holds the reply's prefix.
        let start = ImageBytes.Builder.headroom - EntryHeader.size
        var builder = ImageBytes.Builder(
            in: files.buffers.buffer(capacity: ImageBytes.Builder.size(forImageOf: size - EntryHeader.size)))
        builder.buffer.moveWriterIndex(to: start + size)
        let opened = try builder.buffer.withUnsafeMutableReadableBytes { bytes throws(SystemError) in
            let entry = UnsafeMutableRawBufferPointer(rebasing: bytes[start...])
            guard try read(file, entry) == size else { return nil as (SealedRecord, imageLength: Int)? }
            return EntryHeader.open(entry, of: owner, at: address, with: cipher, known: known)
        }
        guard let (sealed, length) = opened else { return nil }
        builder.buffer.moveWriterIndex(to: ImageBytes.Builder.headroom + length)
        return (Image(sealed.record, bytes: builder.finish(framing)), sealed)
    }

    /// Updates the time of last use, at most once an hour.
    private func recordUse(of file: borrowing OpenFile, _ status: FileStatus) {
        guard Eviction.shouldRecordUse(lastUse: status.modifiedSeconds, now: files.now()) else { return }
        do throws(SystemError) {
            try file.touch(at: files.now())
        } catch {
            // On a read-only disk, hits go on (I9); the image only seems less used than it is.
        }
    }
}
