import NIOConcurrencyHelpers
import ThumbnailCache

extension ImageFiles {
    /// Counts what a generation held at the start, bucket by bucket, each with its commit lock held; so that the sum is
    /// exact beside writes going on. Does nothing where all is counted. On the way it removes what does not belong.
    func count(_ generation: Generation, until isStopped: () -> Bool, yield: YieldToOthers) throws {
        guard ledger.withLockedValue({ $0.usage(of: generation.number) }) == nil else { return }
        let directory = try existingDirectory(of: generation)
        if let directory { try tidy(directory) }
        for bucket in UInt8.min...UInt8.max {
            if isStopped() { return }
            guard ledger.withLockedValue({ $0.awaitsCount(generation.number, bucket: bucket) }) else { continue }
            try withLock(generation, bucket) {
                // A write may have made the directories since, but it needs this lock to place anything in them.
                let usage = try existingDirectory(of: generation).map { try count(bucket, in: $0) } ?? Usage()
                ledger.withLockedValue { $0.setCount(usage, of: generation.number, bucket: bucket) }
            }
            yield()
        }
    }

    private func count(_ bucket: UInt8, in directory: Directory) throws -> Usage {
        // Not through the cache of open directories: this passes through all of them once.
        guard let place = try existing(BucketName.fileName(bucket), in: directory) else { return Usage() }
        var usage = Usage(bytes: costs.directory)
        for entry in try disk.names(in: place) {
            guard let status = try disk.status(of: entry.name, in: place) else { continue }
            guard status.kind == .file, status.linkCount == 1, status.size <= largestEntry,
                EntryAddress(entry.name)?.bucket == bucket
            else {
                try trash.take(entry.name, from: place)
                continue
            }
            usage = usage + Usage(images: 1, bytes: costs.file(status.size))
        }
        return usage
    }

    /// Leaves buckets and this run's temporary files in a generation's directory.
    private func tidy(_ directory: Directory) throws {
        for entry in try disk.names(in: directory) {
            let isBucket = BucketName.bucket(of: entry.name) != nil && entry.kind != .file && entry.kind != .other
            let isOurs = temporaries.isTemporary(entry.name) && !temporaries.isStale(entry.name)
            if !isBucket && !isOurs { try trash.take(entry.name, from: directory) }
        }
    }
}
