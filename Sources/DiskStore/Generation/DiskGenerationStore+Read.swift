import CacheCore
import LinuxSupport
import NIOCore

extension DiskGenerationStore {
    /// How often a file is opened under a name where others keep appearing; then it is a miss.
    private static let mostAttempts = 4

    /// One entry, opened in the buffer that it is then sent from. Costs openat, fstat, pread and close, and one
    /// allocation of the image's size.
    func read(_ address: EntryAddress, with cipher: EntryCipher, framing: ReplyFraming) throws -> Image? {
        guard let bucket = try files.existingDirectory(of: generation, bucket: address.bucket) else { return nil }
        for _ in 0..<Self.mostAttempts {
            do {
                let file = try files.disk.open(address.fileName, in: bucket, for: .reading)
                let status = try file.status()
                // Replaced or removed after it was opened: no name leads to it any more.
                if status.linkCount == 0 { continue }
                if let image = try read(file, status, at: address, with: cipher, framing: framing) {
                    noteUse(of: file, status)
                    return image
                }
                files.reject(address, status: status, in: generation)
            } catch {
                if error.isMissing { return nil }
                guard error.isOfWrongKind || error.isDenied else { throw error }
                files.reject(address, status: nil, in: generation)
            }
            return nil
        }
        return nil
    }

    /// Nil for what is torn, tampered with, planted or unreadable.
    func read(
        _ file: borrowing OpenFile, _ status: FileStatus, at address: EntryAddress, with cipher: EntryCipher,
        framing: ReplyFraming
    ) throws(SystemError) -> Image? {
        guard isInOrder(status) else { return nil }
        do throws(SystemError) {
            return try image(in: file, of: Int(status.size), at: address, with: cipher, framing: framing) {
                file, buffer throws(SystemError) in
                try file.read(into: buffer)
            }
        } catch {
            // What the disk cannot give back (F6) is as good as torn; what memory was short for is not.
            if error.isOfMedium { return nil }
            throw error
        }
    }

    /// Whether a file may be an entry at all.
    func isInOrder(_ status: FileStatus) -> Bool {
        status.kind == .file && status.linkCount == 1 && status.size >= EntryHeader.overhead
            && status.size <= files.costs.longest
    }

    /// Reads an entry of `size` bytes into the buffer that is later sent, and opens it there. Nil when anything about
    /// it is not as it was sealed (I5), or when not all of it was read.
    func image(
        in file: borrowing OpenFile, of size: Int, at address: EntryAddress, with cipher: EntryCipher,
        framing: ReplyFraming,
        read: (borrowing OpenFile, UnsafeMutableRawBufferPointer) throws(SystemError) -> Int
    ) throws(SystemError) -> Image? {
        // The header goes into the room that the builder keeps before the image, which the reply's prefix takes later.
        let start = ImageBytes.Builder.headroom - EntryHeader.size
        var builder = ImageBytes.Builder(capacity: size - EntryHeader.size)
        builder.buffer.moveWriterIndex(to: start + size)
        let opened = try builder.buffer.withUnsafeMutableReadableBytes { bytes throws(SystemError) in
            let entry = UnsafeMutableRawBufferPointer(rebasing: bytes[start...])
            return try read(file, entry) == size ? EntryHeader.open(entry, of: owner, at: address, with: cipher) : nil
        }
        guard let (record, length) = opened else { return nil }
        builder.buffer.moveWriterIndex(to: ImageBytes.Builder.headroom + length)
        return Image(record, bytes: builder.finish(framing))
    }

    /// Marks an image as used, at most once an hour.
    private func noteUse(of file: borrowing OpenFile, _ status: FileStatus) {
        guard Eviction.isWorthNoting(lastUse: status.modifiedSeconds, now: files.now()) else { return }
        do throws(SystemError) {
            try file.touch(at: files.now())
        } catch {
            // On a read-only disk hits go on (I9); the image merely looks less used than it is.
        }
    }
}
