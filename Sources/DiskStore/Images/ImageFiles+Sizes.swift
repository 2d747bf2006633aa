import ThumbnailCache

extension ImageFiles {
    /// Names of a bucket that are looked through for a profile's sizes: some twelve system calls' worth. A bucket holds one in 256 of a
    /// user's images, so nobody who has fewer than a million has more.
    static let mostNamesLookedThrough = 4_096

    /// The sizes in which a profile has entries. Beside writes and removals going on: what it says was so at some moment.
    func sizes(of profile: SealedName, in generation: Generation) throws -> [UInt16] {
        guard !generation.holdsNothing(in: profile.bucket),
            let bucket = try existingDirectory(of: generation, bucket: profile.bucket)
        else { return [] }
        let prefix = profile.fileName.bytes
        var sizes: [UInt16] = []
        var seen = 0
        try disk.list(bucket) { entry in
            if entry.name.bytes.starts(with: prefix), let address = EntryAddress(entry.name) {
                sizes.append(address.size)
            }
            seen += 1
            return seen < Self.mostNamesLookedThrough
        }
        return sizes
    }
}
