import CacheCore
import Logging
import NIOConcurrencyHelpers

extension ImageFiles {
    /// Counts what a generation had at the start, bucket by bucket, each with its commit lock held; so that the sum is
    /// exact beside writes going on. Does nothing where all is counted. On the way it removes what does not belong.
    func count(_ generation: Generation, until isStopped: () -> Bool, yield: YieldToOthers) throws {
        let isCounted = ledger.withLockedValue { $0.usage(of: generation.number) } != nil
        if isCounted, generation.isTidy { return }
        var failure = FirstFailure()
        // What cannot be removed is no reason not to count.
        failure.attempt {
            if let directory = try existingDirectory(of: generation) { try tidy(directory) }
            generation.noteTidy()
        }
        while let bucket = ledger.withLockedValue({ $0.nextToCount(of: generation.number) }) {
            if isStopped() { return }
            withLock(generation, bucket) {
                var usage = Usage()
                // One that cannot be listed counts as empty: the quota goes on for all others, and for what is added.
                failure.attempt {
                    // A write may have made the directories since, but it needs this lock to put anything in them.
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
        // Not through the cache of open directories: this passes through all of them once.
        guard let found = try disk.existingDirectory(BucketName.fileName(bucket), in: directory) else { return Usage() }
        var usage = Usage(bytes: costs.directory)
        for entry in try disk.names(in: found) {
            guard let status = try disk.status(of: entry.name, in: found) else { continue }
            guard status.kind == .file, status.linkCount == 1, status.size <= costs.longest,
                let address = EntryAddress(entry.name), address.bucket == bucket
            else {
                log.attempt("what does not belong stays", .debug) { try takeAway(entry.name, status.kind, from: found) }
                continue
            }
            usage = usage + Usage(images: 1, bytes: costs.file(status.size))
            if address.code != 0 { generation.noteSize() }
        }
        return usage
    }

    /// Leaves buckets and this run's temporary files in a generation's directory.
    private func tidy(_ directory: Directory) throws {
        for entry in try disk.names(in: directory) {
            let isBucket = BucketName.bucket(of: entry.name) != nil && entry.kind != .file && entry.kind != .other
            let isOurs = disk.temporaries.isTemporary(entry.name) && !disk.temporaries.isStale(entry.name)
            guard !isBucket, !isOurs, let status = try disk.status(of: entry.name, in: directory) else { continue }
            try takeAway(entry.name, status.kind, from: directory)
        }
    }

    /// Removes what does not belong. A file goes at once: it may be an image that a living key opens, and in the trash
    /// it would outlive the receipt of a purge of its profile (I3).
    private func takeAway(_ name: FileName, _ kind: FileStatus.Kind, from directory: Directory) throws {
        if kind == .directory { return try trash.take(name, from: directory) }
        try disk.unlinkIfPresent(name, in: directory)
    }
}
