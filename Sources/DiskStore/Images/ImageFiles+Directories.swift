import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The directories of entries: `users/<uid>/<user-name>.<generation>/<hh>`. ``DirectoryCache`` keeps those of
/// generations and buckets open.
extension ImageFiles {
    func existingDirectory(of uid: UInt32) throws -> Directory? {
        try disk.existingDirectory(FileName(String(uid)), in: users)
    }

    /// Opens a generation's directory or one of its buckets; nil if it is missing.
    ///
    /// Does not take the commit lock, which a purge may hold during an fsync. A bucket may therefore be removed while
    /// it is opened here. It is empty then, and is not cached, so that later operations find its successor.
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

    func openOrCreateDirectory(of generation: Generation) throws -> Directory {
        let key = generation.key()
        if let found = disk.directories[key] { return found }
        let uid = generation.owner.uid
        let found = try claims.claiming(uid) {
            try openOrCreate(generation.directoryName, in: try openOrCreate(FileName(String(uid)), in: users))
        }
        disk.directories.insert(found, for: key)
        return found
    }

    /// Removes the directory of a uid after its last generation.
    func removeDirectoryIfEmpty(of uid: UInt32) {
        log.onFailure("could not remove an empty directory", .debug, ["uid": "\(uid)"]) {
            try claims.ifUnclaimed(uid) { try disk.removeDirectoryIfEmpty(FileName(String(uid)), in: users) }
        }
    }

    /// Opens a bucket for a new entry, created if necessary. The commit lock is held.
    func openOrCreateDirectory(of generation: Generation, bucket: UInt8) throws -> Directory {
        generation.markUsed(bucket)
        let key = generation.key(bucket)
        if let found = disk.directories[key] { return found }
        let found = try openOrCreate(BucketName.fileName(bucket), in: try openOrCreateDirectory(of: generation)) {
            ledger.withLockedValue { $0.add(images: 0, bytes: costs.directory, to: generation.number, bucket: bucket) }
        }
        disk.directories.insert(found, for: key)
        return found
    }

    /// Removes a bucket if it is empty. If this fails, eviction finds it later. The commit lock is held.
    func removeBucketIfEmpty(_ bucket: UInt8, of generation: Generation) {
        log.onFailure("could not remove an empty directory", .debug) {
            try removeDirectoryIfEmpty(of: generation, bucket: bucket)
        }
    }

    /// Returns whether this call removed the bucket. The commit lock is held.
    @discardableResult
    func removeDirectoryIfEmpty(of generation: Generation, bucket: UInt8) throws -> Bool {
        guard let parent = try existingDirectory(of: generation),
            try disk.removeDirectoryIfEmpty(BucketName.fileName(bucket), in: parent)
        else { return false }
        disk.directories.remove(generation.key(bucket))
        ledger.withLockedValue { $0.add(images: 0, bytes: -costs.directory, to: generation.number, bucket: bucket) }
        return true
    }

    /// Opens a directory, created if necessary. Moves anything else of that name to the trash.
    private func openOrCreate(_ name: FileName, in parent: Directory, wasMade: () -> Void = {}) throws -> Directory {
        do {
            return try disk.openDirectory(name, in: parent)
        } catch  where error.isMissing {
            // Created below.
        } catch  where error.isWrongKind {
            try trash.move(name, from: parent)
        }
        if try disk.makeDirectoryIfAbsent(name, in: parent) { wasMade() }
        return try disk.openDirectory(name, in: parent)
    }
}
