import LinuxSupport
import NIOCore
import ThumbnailCache

extension Vault {
    func write(
        _ slot: Slot, _ image: Image, isCurrent: () -> Bool, committed: () -> Void
    ) throws -> Bool {
        let placed: EntryAddress? = try whileOpen {
            try storeErrors("writing an image") {
                let (address, entry) = try seal(slot, image)
                let isPlaced = try entry.withUnsafeBytes { entry in
                    try files.write(entry, at: address, in: generation, isCurrent: isCurrent, committed: committed)
                }
                return isPlaced ? address : nil
            }
        }
        guard let placed else { return false }
        // A purge of this user does not wait until others' images are gone.
        makeRoom(keeping: placed)
        return true
    }

    private func seal(_ slot: Slot, _ image: Image) throws -> (EntryAddress, entry: [UInt8]) {
        guard let record = ImageRecordCoding.encode(image.record) else {
            throw StoreError.failed("the image's URL is longer than 65,535 bytes")
        }
        let header = EntryHeader(recordLength: record.count, imageLength: image.bytes.count)
        let size = EntryHeader.overhead + record.count + image.bytes.count
        guard size <= files.largestEntry else {
            throw StoreError.noSpace("the image takes \(size) bytes, over the quota of \(files.largestEntry)")
        }
        return try withCrypter { crypter in
            let address = try crypter.address(of: slot)
            let entry = try [UInt8](unsafeUninitializedCapacity: size) { entry, count in
                let entry = UnsafeMutableRawBufferPointer(entry)
                header.write(to: entry)
                let box = UnsafeMutableRawBufferPointer(rebasing: entry[EntryHeader.boxStart..<size])
                try header.withBound(of: owner, at: address) { bound in
                    try image.bytes.image.withUnsafeReadableBytes { image in
                        try record.withUnsafeBytes { record in
                            try crypter.seal(image, record, bound: bound, into: box, random: files.random)
                        }
                    }
                }
                count = size
            }
            return (address, entry)
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
