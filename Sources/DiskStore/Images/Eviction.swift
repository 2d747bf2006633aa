import CacheCore
import Logging
import NIOConcurrencyHelpers

extension ImageFiles {
    /// Whether ``makeRoom(after:keeping:)`` has anything to do.
    func mayExceedQuota(_ generation: Generation) -> Bool {
        let trashed = trash.usage.bytes
        return ledger.withLockedValue {
            $0.counted(of: generation.number).bytes > userQuota || $0.total.bytes + trashed > quota
        }
    }

    /// Enforces the quotas of a generation and of the store after a write. Returns whether they are met.
    ///
    /// The amount of work is bounded; maintenance does the rest. The entry just written is evicted only if it alone
    /// exceeds a quota.
    func makeRoom(after generation: Generation, keeping: EntryAddress?) throws -> Bool {
        let keepsOwn = try makeRoom(in: generation, keeping: keeping)
        // Trash counts towards the quota; delete it before evicting images.
        let trashed = trash.usage.bytes
        if trashed > 0, ledger.withLockedValue({ $0.total.bytes }) + trashed > quota {
            _ = try trash.emptySome(budget: Eviction.batch)
        }
        var exhausted: Set<UInt64> = []
        for _ in 0..<Self.maximumAccountsPerWrite {
            if makeRoomInStore(keeping: keeping, excluding: &exhausted) { return keepsOwn }
            // One batch suffices for one write.
            if exhausted.isEmpty { break }
        }
        return false
    }

    private static let maximumAccountsPerWrite = 4

    var isOverQuota: Bool {
        if ledger.withLockedValue({ $0.total.bytes > quota }) { return true }
        return generations.contains { generation in
            ledger.withLockedValue { $0.counted(of: generation.number).bytes > userQuota }
        }
    }

    /// Evicts a batch from a user that exceeds its quota. Returns false if another batch is needed.
    func makeRoom(in generation: Generation, keeping: EntryAddress?) throws -> Bool {
        let used = ledger.withLockedValue { $0.counted(of: generation.number).bytes }
        guard used > userQuota else { return true }
        // Evict to 95 %, so that the next writes do not evict again.
        let freed = try evict(
            from: generation, bytes: used - (userQuota - userQuota / 20), needed: used - userQuota, keeping: keeping)
        return freed.bytes == 0 || used - freed.bytes <= userQuota
    }

    /// Evicts a batch from the account that most exceeds its share. Returns false if another call is needed.
    /// - Parameter excluding: generations from which nothing could be evicted. A call that evicts nothing adds one.
    func makeRoomInStore(keeping: EntryAddress?, excluding exhausted: inout Set<UInt64>) -> Bool {
        let victim = ledger.withLockedValue { $0.nextToEvict(quota: quota, accountOf: accountOf, excluding: exhausted) }
        guard let victim else { return true }
        var freed = Usage()
        do {
            if let generation = generation(number: victim.generation) {
                freed = try evict(from: generation, bytes: victim.bytes, keeping: keeping)
            }
        } catch  where exhausted.isEmpty {
            log.warning("eviction failed; trying other users", metadata: ["error": "\(error)"])
        } catch {
            // Logged once: on a failing disk, every eviction fails.
        }
        if freed.bytes == 0 {
            // Otherwise an unreadable directory, or one emptied by hand, would disable the quota.
            exhausted.insert(victim.generation)
            return false
        }
        return ledger.withLockedValue { $0.total.bytes <= quota }
    }

    /// Evicts images of a generation, at most a batch, until `bytes` are free, and removes empty buckets. Costs a
    /// listing of the directory and of the sampled buckets, and an fstatat for each sampled image.
    /// - Parameters:
    ///   - needed: bytes for which source images are evicted even while there are renditions; nil means `bytes`.
    ///   - keeping: the entry to make room for. Neither it nor its source is evicted.
    @discardableResult
    func evict(
        from generation: Generation, bytes: Int, needed: Int? = nil, keeping: EntryAddress?
    ) throws -> Usage {
        var freed = Usage()
        var hadRenditions = false
        while freed.bytes < bytes, freed.images < Eviction.batch {
            let before = freed.images
            let (sample, isWhole) = try sample(of: generation, keeping: keeping, freed: &freed)
            hadRenditions = hadRenditions || sample.contains(where: \.isRendition)
            for victim in Eviction.victims(of: sample, bytes: bytes - freed.bytes, isWhole: isWhole) {
                // Removing the last image of a bucket also frees its directory, which may suffice.
                if freed.bytes >= (victim.isRendition || !hadRenditions ? bytes : needed ?? bytes) { break }
                freed = freed + (try evict(victim, from: generation) ?? Usage())
            }
            if freed.images == before { break }
        }
        counters.count(.evictedImages, freed.images)
        counters.count(.evictedBytes, freed.bytes)
        return freed
    }

    /// Returns sampled images of a generation, from buckets in random order, and whether the sample is complete.
    /// - Parameter freed: increased by the empty buckets that were removed.
    private func sample(
        of generation: Generation, keeping: EntryAddress?, freed: inout Usage
    ) throws -> (sample: [Eviction.Candidate], isWhole: Bool) {
        guard let directory = try existingDirectory(of: generation) else { return ([], true) }
        let size = generation.hasSizes ? Eviction.sampleSizeWithRenditions : Eviction.sampleSize
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
            let hasSizes = addresses.contains { !$0.isUnsized }
            let families = hasSizes ? Dictionary(grouping: addresses, by: \.profile) : [:]
            while let address = addresses.popRandom() {
                if sample.count == size { return (sample, false) }
                guard address != keeping, keeping.map({ !address.canBeSource(of: $0) }) ?? true,
                    let status = try disk.status(of: address.fileName, in: found), status.kind == .file
                else { continue }
                var candidate = self.candidate(address, status)
                for relative in families[address.profile] ?? [] {
                    if relative.canBeSource(of: address) { candidate.isRendition = true }
                    guard address.canBeSource(of: relative),
                        let status = try disk.status(of: relative.fileName, in: found)
                    else { continue }
                    candidate.renditions.append(relative)
                    candidate.lastUse = max(candidate.lastUse, self.candidate(relative, status).lastUse)
                }
                sample.append(candidate)
            }
        }
        return (sample, true)
    }

    /// Evicts an image and its renditions. Returns nil if the image was used or rewritten after sampling.
    private func evict(_ victim: Eviction.Candidate, from generation: Generation) throws -> Usage? {
        let bucket = victim.address.bucket
        return try withLock(generation, bucket) {
            let name = victim.address.fileName
            guard let directory = try existingDirectory(of: generation, bucket: bucket),
                let status = try disk.status(of: name, in: directory), status.kind == .file,
                candidate(victim.address, status).file == victim.file
            else { return nil }
            var freed = Usage(images: 1, bytes: victim.size)
            for rendition in victim.renditions {
                guard let status = try disk.status(of: rendition.fileName, in: directory), status.kind == .file else {
                    continue
                }
                try remove(rendition.fileName, status, from: directory, bucket, of: generation)
                freed = freed + Usage(images: 1, bytes: costs.file(status.size))
            }
            try remove(name, status, from: directory, bucket, of: generation)
            if try removeDirectoryIfEmpty(of: generation, bucket: bucket) { freed.bytes += costs.directory }
            return freed
        }
    }

    private func candidate(_ address: EntryAddress, _ status: FileStatus) -> Eviction.Candidate {
        Eviction.Candidate(
            address: address, size: costs.file(status.size),
            file: Eviction.File(
                modified: .seconds(status.modifiedSeconds) + .nanoseconds(status.modifiedNanoseconds),
                inode: status.inode))
    }
}

extension Array {
    fileprivate mutating func popRandom() -> Element? {
        guard let index = indices.randomElement() else { return nil }
        swapAt(index, count - 1)
        return removeLast()
    }
}

/// Selects images to evict: the least recently used of a sample, which approximates LRU at low cost.
///
/// Renditions are evicted before their source and along with it, because a rendition is computed in milliseconds, while
/// a source has to be downloaded. The rank of a rendition is therefore ``sourceAdvantage`` older than its last use,
/// also in comparison with sources of other profiles. Without this, sources would go first: uses are recorded hourly,
/// and renditions are written after their source.
///
/// An image is taken for a rendition if an image of the same profile without a size exists. This includes images
/// downloaded or PUT in a size.
enum Eviction {
    /// Identifies a file and its state: changed by each write and each recorded use.
    struct File: Equatable {
        let modified: Duration
        let inode: UInt64
    }

    struct Candidate {
        let address: EntryAddress
        /// Bytes on disk.
        let size: Int
        let file: File
        /// Last use of the image or one of its ``renditions``, to the hour, since 1970.
        var lastUse: Duration
        /// Whether its source exists.
        var isRendition = false
        /// The images evicted with it.
        var renditions: [EntryAddress] = []

        init(address: EntryAddress, size: Int, file: File) {
            (self.address, self.size, self.file) = (address, size, file)
            lastUse = file.modified
        }

        /// Images are evicted in ascending order.
        fileprivate var rank: Duration { isRendition ? lastUse - sourceAdvantage : lastUse }
    }

    /// How much longer than a rendition a source must be unused to be evicted first.
    static let sourceAdvantage: Duration = .seconds(7 * 24 * 3600)
    static let sampleSize = 32
    /// Number of images sampled if there may be renditions, so that a rendition is found before a source is evicted.
    static let sampleSizeWithRenditions = 256
    static let batch = 64
    /// Minimum age in seconds of the recorded use before a new one is recorded, so that most hits cause no write.
    static let useResolution: Int64 = 3600

    /// Returns the images to evict, in order, to free `bytes`.
    ///
    /// At most a quarter of an incomplete sample, because the rest of it is not old in comparison with unsampled
    /// images. No source after a rendition, because there may be more renditions.
    /// - Parameter isWhole: whether the sample is complete.
    static func victims(of sample: [Candidate], bytes: Int, isWhole: Bool) -> [Candidate] {
        let limit = isWhole ? sample.count : max(1, sample.count / 4)
        let ordered = sample.sorted { $0.rank < $1.rank }.prefix(limit)
        var left = bytes
        return ordered.prefix { candidate in
            defer { left -= candidate.size }
            return left > 0 && (isWhole || candidate.isRendition || ordered.first?.isRendition == false)
        }
    }

    /// Whether a use is to be recorded: the last one is older than ``useResolution``, or lies as far in the future
    /// because the clock was set back (F14).
    static func shouldRecordUse(lastUse: Int64, now: Int64) -> Bool {
        let (age, overflow) = now.subtractingReportingOverflow(lastUse)
        return overflow || age >= useResolution || age <= -useResolution
    }
}
