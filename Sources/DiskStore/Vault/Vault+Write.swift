import LinuxSupport
import NIOCore
import ThumbnailCache

extension Vault {
    func write(
        _ slot: Slot, _ image: Image, isCurrent: () -> Bool, committed: () -> Void
    ) throws -> Bool {
        try whileOpen {
            try storeErrors("writing an image") {
                let entry = try seal(slot, image)
                defer { entry.bytes.deallocate() }
                var isPlaced = false
                defer {
                    let bucket = entry.address.bucket
                    // Made for this entry, maybe; it counts towards the quota.
                    if !isPlaced { files.withLock(generation, bucket) { files.tidyBucket(bucket, of: generation) } }
                }
                guard let prepared = try prepare(entry) else { return false }
                isPlaced = try files.commit(
                    prepared, in: generation, isCurrent: isCurrent, committed: committed)
                if isPlaced { makeRoom(keeping: entry.address) }
                return isPlaced
            }
        }
    }

    private typealias SealedEntry = (address: EntryAddress, bytes: UnsafeMutableRawBufferPointer)

    /// The caller deallocates the bytes.
    private func seal(_ slot: Slot, _ image: Image) throws -> SealedEntry {
        guard let record = ImageRecordCoding.encode(image.record) else {
            throw StoreError.failed("the image's URL is longer than 65,535 bytes")
        }
        let header = EntryHeader(recordLength: record.count, imageLength: image.bytes.count)
        let size = EntryHeader.overhead + record.count + image.bytes.count
        guard size <= files.largestEntry else {
            throw StoreError.noSpace("the image takes \(size) bytes, over the quota of \(files.largestEntry)")
        }
        let entry = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 16)
        do {
            let address = try withCrypter { crypter in
                let address = try crypter.address(of: slot)
                header.write(to: entry)
                let box = UnsafeMutableRawBufferPointer(rebasing: entry[EntryHeader.boxStart...])
                try header.withBound(of: owner, at: address) { bound in
                    try image.bytes.image.withUnsafeReadableBytes { image in
                        try record.withUnsafeBytes { record in
                            try crypter.seal(image, record, bound: bound, into: box, random: files.random)
                        }
                    }
                }
                return address
            }
            return (address, entry)
        } catch {
            entry.deallocate()
            throw error
        }
    }

    /// Writes the temporary file. On a full disk (F4, F5) trash and some of this user's own images go first, once.
    private func prepare(_ entry: SealedEntry) throws -> PreparedEntry? {
        let bytes = UnsafeRawBufferPointer(entry.bytes)
        do {
            return try files.prepare(bytes, at: entry.address, in: generation)
        } catch let error as SystemError where error.isNoSpace {
            _ = try files.trash.emptySome(budget: 4 * Eviction.batch)
            try files.evict(from: generation, bytes: max(2 * bytes.count, 256 << 10), keeping: nil)
            return try files.prepare(bytes, at: entry.address, in: generation)
        }
    }

    private func makeRoom(keeping address: EntryAddress) {
        do {
            if try !files.makeRoom(after: generation, keeping: address) { files.maintenance.wake() }
        } catch {
            // The image is written; being over a quota for a while is no reason to say that it is not.
            files.maintenance.wake()
        }
    }
}
