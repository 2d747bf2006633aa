import Logging
import NIOConcurrencyHelpers
import ThumbnailCache

extension ImageFiles {
    /// Brings a generation and the store back within their quotas after a write. Bounded; what is left over is left to
    /// maintenance. The entry just written goes last of all: only when it alone is over.
    /// - Returns: whether the quotas are kept now.
    func makeRoom(after generation: Generation, keeping: EntryAddress?) throws -> Bool {
        let keepsOwn = try makeRoom(in: generation, keeping: keeping)
        // Trash counts too, but nobody's images go while there is trash to delete.
        let trashed = trash.usage.bytes
        if trashed > 0, ledger.withLockedValue({ $0.total.bytes }) + trashed > quota {
            _ = try trash.emptySome(budget: Eviction.batch)
        }
        var nothingToGive: Set<UInt64> = []
        for _ in 0..<Self.mostGiversAsked {
            if makeRoomInStore(keeping: keeping, passingOver: &nothingToGive) { return keepsOwn }
            // What was freed is enough for one write.
            if nothingToGive.isEmpty { break }
        }
        return false
    }

    /// How many are asked to give by somebody who has something else to do.
    private static let mostGiversAsked = 4

    /// Whether all images together, or those of one user, take more than they may.
    var isOverQuota: Bool {
        if ledger.withLockedValue({ $0.total.bytes > quota }) { return true }
        return generations.contains { generation in
            ledger.withLockedValue { $0.counted(of: generation.number).bytes > userQuota }
        }
    }

    /// Evicts a batch from a user that is over its own quota. False when another batch would bring it on.
    func makeRoom(in generation: Generation, keeping: EntryAddress?) throws -> Bool {
        let used = ledger.withLockedValue { $0.counted(of: generation.number).bytes }
        guard used > userQuota else { return true }
        // Down to 95 %, so that it is not needed at every write.
        let freed = try evict(from: generation, bytes: used - (userQuota - userQuota / 20), keeping: keeping)
        return freed.bytes == 0 || used - freed.bytes <= userQuota
    }

    /// Evicts a batch from whoever is most over its share and has something to give. False when another call would
    /// bring it on.
    /// - Parameter passingOver: whoever gave nothing; one more with each call that freed nothing.
    func makeRoomInStore(keeping: EntryAddress?, passingOver nothingToGive: inout Set<UInt64>) -> Bool {
        let giver = ledger.withLockedValue { $0.giver(quota: quota, accountOf: accountOf, passingOver: nothingToGive) }
        guard let giver else { return true }
        var freed = Usage()
        do {
            if let generation = generation(number: giver.generation) {
                freed = try evict(from: generation, bytes: giver.bytes, keeping: keeping)
            }
        } catch  where nothingToGive.isEmpty {
            log.warning("images could not be evicted; others give", metadata: ["error": "\(error)"])
        } catch {
            // Said once: on a disk that fails all do.
        }
        if freed.bytes == 0 {
            // Else one whose directory cannot be read, or was emptied by hand, would switch the quota off for all.
            nothingToGive.insert(giver.generation)
            return false
        }
        return ledger.withLockedValue { $0.total.bytes <= quota }
    }

    /// Removes least recently used images of a generation, at most a batch, until `bytes` are free; and what empty
    /// buckets it meets. Costs a listing of its directory and of a bucket or two, and a look at ``Eviction/sampleSize``
    /// files a round.
    @discardableResult
    func evict(from generation: Generation, bytes: Int, keeping: EntryAddress?) throws -> Usage {
        var freed = Usage()
        while freed.bytes < bytes, freed.images < Eviction.batch {
            let before = freed.images
            let (sample, isWhole) = try sample(of: generation, keeping: keeping, freed: &freed)
            for victim in Eviction.victims(of: sample, bytes: bytes - freed.bytes, isWhole: isWhole) {
                // A directory that goes with its last image may have been enough.
                if freed.bytes >= bytes { break }
                if let bytes = try evict(victim, from: generation) {
                    freed = freed + Usage(images: 1, bytes: bytes)
                }
            }
            if freed.images == before { break }
        }
        counters.count(.evictedImages, freed.images)
        counters.count(.evictedBytes, freed.bytes)
        return freed
    }

    /// Some images of a generation, from buckets in random order, and whether that is all of them.
    /// - Parameter freed: grows by the buckets that were empty and are gone now.
    private func sample(
        of generation: Generation, keeping: EntryAddress?, freed: inout Usage
    ) throws -> (sample: [Eviction.Candidate], isWhole: Bool) {
        guard let directory = try existingDirectory(of: generation) else { return ([], true) }
        var buckets = try disk.names(in: directory).compactMap { BucketName.bucket(of: $0.name) }
        var sample: [Eviction.Candidate] = []
        while let bucket = buckets.popRandom() {
            guard let found = try disk.existingDirectory(BucketName.fileName(bucket), in: directory) else { continue }
            let names = try disk.names(in: found, limit: 4096)
            if names.isEmpty {
                let isGone = try withLock(generation, bucket) {
                    try removeDirectoryIfEmpty(of: generation, bucket: bucket)
                }
                if isGone { freed.bytes += costs.directory }
                continue
            }
            var addresses = names.compactMap { EntryAddress($0.name) }
            while let address = addresses.popRandom() {
                if sample.count == Eviction.sampleSize { return (sample, false) }
                guard address != keeping, let status = try disk.status(of: address.fileName, in: found),
                    status.kind == .file
                else { continue }
                sample.append(candidate(address, status))
            }
        }
        return (sample, true)
    }

    /// The bytes that are free then; nil when the image was used or written anew since it was sampled.
    private func evict(_ victim: Eviction.Candidate, from generation: Generation) throws -> Int? {
        let bucket = victim.address.bucket
        return try withLock(generation, bucket) {
            let name = victim.address.fileName
            guard let directory = try existingDirectory(of: generation, bucket: bucket),
                let status = try disk.status(of: name, in: directory), status.kind == .file,
                candidate(victim.address, status) == victim
            else { return nil }
            try remove(name, status, from: directory, bucket, of: generation)
            let isBucketGone = try removeDirectoryIfEmpty(of: generation, bucket: bucket)
            return victim.size + (isBucketGone ? costs.directory : 0)
        }
    }

    private func candidate(_ address: EntryAddress, _ status: FileStatus) -> Eviction.Candidate {
        Eviction.Candidate(
            address: address, size: costs.file(status.size),
            lastUse: .seconds(status.modifiedSeconds) + .nanoseconds(status.modifiedNanoseconds),
            inode: status.inode)
    }
}

extension Array {
    /// Removes any element, without moving the others up; nil where there is none.
    fileprivate mutating func popRandom() -> Element? {
        guard let index = indices.randomElement() else { return nil }
        swapAt(index, count - 1)
        return removeLast()
    }
}

/// Which images go when there are too many: the least recently used of a sample, which comes close to the least
/// recently used of all at a small part of the cost. Decisions only; ``ImageFiles`` acts on them.
enum Eviction {
    /// An image that could go.
    struct Candidate: Equatable {
        let address: EntryAddress
        /// Bytes that it takes on disk.
        let size: Int
        /// When it was last used, at a grain of an hour, since 1970: its file's modification time.
        let lastUse: Duration
        let inode: UInt64
    }

    /// Images looked at before any is chosen.
    static let sampleSize = 32
    /// Images that go on one thread that has something else to do; what is left over is left to maintenance.
    static let batch = 64
    /// How far back a use must lie before another one is noted, in seconds: a hit costs no write.
    static let grain: Int64 = 3600

    /// Those that go, longest unused first: as many as make `bytes`, but at most a quarter of a sample, since the rest
    /// of it is not old compared to what was not sampled.
    /// - Parameter isWhole: whether the sample holds all there is.
    static func victims(of sample: [Candidate], bytes: Int, isWhole: Bool) -> [Candidate] {
        let limit = isWhole ? sample.count : max(1, sample.count / 4)
        var left = bytes
        return sample.sorted { $0.lastUse < $1.lastUse }.prefix(limit).prefix { candidate in
            defer { left -= candidate.size }
            return left > 0
        }
    }

    /// Whether a use is worth noting: the last one noted lies more than a grain back, or in a future that a clock set
    /// back has made (F14).
    static func isWorthNoting(lastUse: Int64, now: Int64) -> Bool {
        let (age, overflow) = now.subtractingReportingOverflow(lastUse)
        return overflow || age >= grain || age <= -grain
    }
}
