import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The directories on the way to an entry: `users/<uid>/<user-name>.<generation>/<hh>`. Those of generations and
/// buckets stay open in the ``DirectoryCache``.
extension ImageFiles {
    /// `users/<uid>`, or nil.
    func existingDirectory(of uid: UInt32) throws -> Directory? {
        try disk.existingDirectory(FileName(String(uid)), in: users)
    }

    /// A generation's own directory, or one of its buckets; or nil. Without the commit lock, which a purge may hold for
    /// as long as an fsync takes.
    ///
    /// A bucket goes with its last entry, maybe while it is opened here: one that is gone holds nothing and does no
    /// harm, but must not stay open for those who come after it was made anew.
    func existingDirectory(of generation: Generation, bucket: UInt8? = nil) throws -> Directory? {
        let key = generation.key(bucket)
        if let found = disk.directories[key] { return found }
        let removals = disk.directories.removals
        let parent = try bucket == nil ? existingDirectory(of: generation.owner.uid) : existingDirectory(of: generation)
        let name = bucket.map(BucketName.fileName) ?? generation.directoryName
        guard let parent, let found = try disk.existingDirectory(name, in: parent) else { return nil }
        disk.directories.insert(found, for: key, unlessRemovedSince: removals)
        return found
    }

    /// A generation's own directory, made if missing.
    func madeDirectory(of generation: Generation) throws -> Directory {
        let key = generation.key()
        if let found = disk.directories[key] { return found }
        let uid = generation.owner.uid
        let found = try claims.claiming(uid) {
            try made(generation.directoryName, in: try made(FileName(String(uid)), in: users))
        }
        disk.directories.insert(found, for: key)
        return found
    }

    /// With the last generation of a uid its directory goes, too.
    func removeDirectoryIfEmpty(of uid: UInt32) {
        log.attempt("an empty directory could not be removed", .debug, ["uid": "\(uid)"]) {
            try claims.ifUnclaimed(uid) { try disk.removeDirectoryIfEmpty(FileName(String(uid)), in: users) }
        }
    }

    /// One of a generation's buckets, made if missing: an entry is to be put in it. The commit lock is held.
    func madeDirectory(of generation: Generation, bucket: UInt8) throws -> Directory {
        generation.willHold(in: bucket)
        let key = generation.key(bucket)
        if let found = disk.directories[key] { return found }
        let found = try made(BucketName.fileName(bucket), in: try madeDirectory(of: generation)) {
            ledger.withLockedValue { $0.add(images: 0, bytes: costs.directory, to: generation.number, bucket: bucket) }
        }
        disk.directories.insert(found, for: key)
        return found
    }

    /// Removes a bucket if it holds nothing, behind something that has happened already: should it stay, eviction finds
    /// it. The commit lock is held.
    func tidyBucket(_ bucket: UInt8, of generation: Generation) {
        log.attempt("an empty directory could not be removed", .debug) {
            try removeDirectoryIfEmpty(of: generation, bucket: bucket)
        }
    }

    /// Removes a bucket that holds nothing any more. The commit lock is held.
    /// - Returns: whether it is gone now, and was not before.
    @discardableResult
    func removeDirectoryIfEmpty(of generation: Generation, bucket: UInt8) throws -> Bool {
        guard let parent = try existingDirectory(of: generation),
            try disk.removeDirectoryIfEmpty(BucketName.fileName(bucket), in: parent)
        else { return false }
        disk.directories.remove(generation.key(bucket))
        ledger.withLockedValue { $0.add(images: 0, bytes: -costs.directory, to: generation.number, bucket: bucket) }
        return true
    }

    /// A directory in another, made if missing. What was planted in its stead goes to the trash.
    /// - Parameter wasMade: called when it was made by this call.
    private func made(_ name: FileName, in parent: Directory, wasMade: () -> Void = {}) throws -> Directory {
        do {
            return try disk.openDirectory(name, in: parent)
        } catch  where error.isMissing {
            // Made below.
        } catch  where error.isOfWrongKind {
            try trash.take(name, from: parent)
        }
        if try disk.makeDirectoryIfAbsent(name, in: parent) { wasMade() }
        return try disk.openDirectory(name, in: parent)
    }
}
