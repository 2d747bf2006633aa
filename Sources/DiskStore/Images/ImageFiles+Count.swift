import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

extension ImageFiles {
    /// Counts the images that a generation had at the start and removes foreign files. Holds the commit lock of each
    /// bucket while counting it, so that the sum is exact beside concurrent writes.
    func count(_ generation: Generation, until isStopped: () -> Bool, yield: YieldToOthers) throws {
        let isCounted = ledger.withLockedValue { $0.usage(of: generation.number) } != nil
        if isCounted, generation.hasNoStaleFiles { return }
        var failure = FirstFailure()
        // A file that cannot be removed does not prevent counting.
        failure.attempt {
            if let directory = try existingDirectory(of: generation) { try tidy(directory) }
            generation.markStaleFilesRemoved()
        }
        while let bucket = ledger.withLockedValue({ $0.nextToCount(of: generation.number) }) {
            if isStopped() { return }
            withLock(generation, bucket) {
                var usage = Usage()
                // A bucket that cannot be listed counts as empty, so that the quota works for the others.
                failure.attempt {
                    // A write may have created the directories, but needs this lock to put an entry in them.
                    usage =
                        try existingDirectory(of: generation).map { try count(bucket, of: generation, in: $0) }
                        ?? Usage()
                }
                ledger.withLockedValue { $0.setCount(usage, of: generation.number, bucket: bucket) }
            }
            yield()
        }
        try failure.rethrow()
    }

    private func count(_ bucket: UInt8, of generation: Generation, in directory: Directory) throws -> Usage {
        // Bypass the directory cache: this passes through all buckets once.
        guard let found = try disk.existingDirectory(BucketName.fileName(bucket), in: directory) else { return Usage() }
        var usage = Usage(bytes: costs.directory)
        for entry in try disk.names(in: found) where !disk.temporaries.isOurs(entry.name) {
            guard let status = try disk.status(of: entry.name, in: found) else { continue }
            if disk.temporaries.isStale(entry.name), status.kind != .directory {
                // A current key may open it, so a failed removal is retried.
                temporaryFiles.register(entry.name, ofEarlierRunIn: generation, bucket: bucket)
                removeTemporary(entry.name, in: found)
                continue
            }
            guard status.kind == .file, status.linkCount == 1, status.size <= costs.maximumEntry,
                let address = EntryAddress(entry.name), address.bucket == bucket
            else {
                log.onFailure("could not remove a foreign file", .debug) {
                    try removeForeign(entry.name, status.kind, from: found)
                }
                continue
            }
            usage = usage + Usage(images: 1, bytes: costs.file(status.size))
            if !address.isUnsized { generation.markSized() }
        }
        return usage
    }

    /// Removes everything from a generation's directory except buckets and this run's temporary files of
    /// ``Disk/sync(_:_:)``.
    private func tidy(_ directory: Directory) throws {
        for entry in try disk.names(in: directory) {
            let isBucket = BucketName.bucket(of: entry.name) != nil && entry.kind != .file && entry.kind != .other
            guard !isBucket, !disk.temporaries.isOurs(entry.name),
                let status = try disk.status(of: entry.name, in: directory)
            else { continue }
            try removeForeign(entry.name, status.kind, from: directory)
        }
    }

    /// Removes a foreign file. Not moved to the trash, since it may be an image that a current key opens and would
    /// survive the purge of its profile there (I3).
    private func removeForeign(_ name: FileName, _ kind: FileStatus.Kind, from directory: Directory) throws {
        if kind == .directory { return try trash.move(name, from: directory) }
        try disk.unlinkIfPresent(name, in: directory)
    }
}
