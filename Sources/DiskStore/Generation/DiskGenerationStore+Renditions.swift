import CacheCore
import LinuxSupport

extension DiskGenerationStore {
    /// Costs a listing of the profile's bucket, and a read of each rendition if there are more than `most`.
    func trimRenditions(of profile: OpaqueID, keeping imageKey: ImageKey, most: Int) throws {
        try whileOpen {
            try storeErrors("removing renditions") {
                try withCipher { cipher in
                    let name = try cipher.names.profileName(of: profile)
                    let addresses = try files.addresses(of: name, in: generation).filter { !$0.isUnsized }
                    guard addresses.count > most else { return }
                    // Images that were PUT in a size are not renditions.
                    let renditions = try addresses.compactMap { address in try use(of: address, with: cipher) }
                    let others = renditions.filter { $0.address.code != imageKey.code }.sorted {
                        $0.lastUse < $1.lastUse
                    }
                    for (address, _, status) in others.prefix(max(0, renditions.count - most)) {
                        try files.remove(address, of: generation) { $0.isSameFile(as: status) }
                    }
                }
            }
        }
    }

    /// Returns when a rendition was last used, to the hour; nil for other images and invalid entries.
    private func use(
        of address: EntryAddress, with cipher: EntryCipher
    ) throws -> (address: EntryAddress, lastUse: Int64, status: FileStatus)? {
        guard let bucket = try files.existingDirectory(of: generation, bucket: address.bucket) else { return nil }
        do throws(SystemError) {
            let file = try files.disk.open(address.fileName, in: bucket, for: .reading)
            let status = try file.status()
            // This read is not a use by a client, so the time of last use stays.
            let image = try read(file, status, at: address, with: cipher, framing: .bare)
            return image?.record.sourceDigest == nil ? nil : (address, status.modifiedSeconds, status)
        } catch {
            if error.isMissing { return nil }
            throw error
        }
    }
}
