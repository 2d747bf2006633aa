import ThumbnailCache

extension Vault {
    func drop(_ slot: Slot, isCurrent: () -> Bool) throws {
        try whileOpen {
            try storeErrors("removing an image that the origin no longer has") {
                let address = try withCrypter { try $0.address(of: slot) }
                try files.withLock(generation, address.bucket) {
                    guard isCurrent(), let bucket = try files.existingDirectory(of: generation, bucket: address.bucket),
                        let status = try files.disk.status(of: address.fileName, in: bucket)
                    else { return }
                    try files.remove(address.fileName, status, from: bucket, address.bucket, of: generation)
                    files.tidyBucket(address.bucket, of: generation)
                }
            }
        }
    }
}
