import CacheCore
import Logging
import NIOConcurrencyHelpers

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
        let freed = try evict(
            from: generation, bytes: used - (userQuota - userQuota / 20), needed: used - userQuota, keeping: keeping)
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

    /// Removes images of a generation, at most a batch, until `bytes` are free, and the empty buckets that it finds.
    /// Costs a listing of the generation's directory and of the buckets that are sampled, and an fstatat for each image
    /// of the sample.
    /// - Parameters:
    ///   - needed: bytes for which sources go, too, while there are renditions. The same as `bytes` if nil.
    ///   - keeping: the entry that room is made for. Neither it nor its source goes.
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
                // A directory that goes with its last image may have been enough.
                if freed.bytes >= (victim.isRendition || !hadRenditions ? bytes : needed ?? bytes) { break }
                freed = freed + (try evict(victim, from: generation) ?? Usage())
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
            let hasSizes = addresses.contains { $0.code != 0 }
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

    /// Removes an image and what was made of it. Nil when the image was used or written anew since it was sampled.
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
    /// Removes any element, without moving the others up; nil where there is none.
    fileprivate mutating func popRandom() -> Element? {
        guard let index = indices.randomElement() else { return nil }
        swapAt(index, count - 1)
        return removeLast()
    }
}

/// Which images go when there are too many: the least recently used of a sample, which comes close to the least
/// recently used of all at a small part of the cost. Decisions only; ``ImageFiles`` acts on them.
///
/// A rendition goes before its source, and with it: a rendition is made anew in milliseconds, a source has to be
/// downloaded. For the same reason a rendition counts as unused for ``head`` longer than it is, also beside the sources
/// of other profiles. Uses are noted hourly, and a file that was written later looks as if it was used later: so without
/// that, the sources would go first.
///
/// Names alone tell what is a rendition: an image beside which its profile's source lies. An image that was downloaded
/// or PUT in a size is taken for one where there is an image without a size, too.
enum Eviction {
    /// By which a file is known again: changed by each noted use, and by each write.
    struct File: Equatable {
        let modified: Duration
        let inode: UInt64
    }

    /// An image that could go.
    struct Candidate {
        let address: EntryAddress
        /// Bytes that it takes on disk.
        let size: Int
        let file: File
        /// When it or one of its ``renditions`` was last used, at a grain of an hour, since 1970.
        var lastUse: Duration
        /// Whether its source lies beside it.
        var isRendition = false
        /// The images that go with it.
        var renditions: [EntryAddress] = []

        init(address: EntryAddress, size: Int, file: File) {
            (self.address, self.size, self.file) = (address, size, file)
            lastUse = file.modified
        }

        /// Those with the lowest go first.
        fileprivate var rank: Duration { isRendition ? lastUse - head : lastUse }
    }

    /// How much longer than a rendition a source has to be unused to go before it.
    static let head: Duration = .seconds(7 * 24 * 3600)
    /// Images looked at before any is chosen.
    static let sampleSize = 32
    /// The same where there may be renditions, so that no source goes for want of a look at one.
    static let sampleSizeWithRenditions = 256
    /// Images that go on one thread that has something else to do; what is left over is left to maintenance.
    static let batch = 64
    /// How far back a use must lie before another one is noted, in seconds: a hit costs no write.
    static let grain: Int64 = 3600

    /// Those that go, in order: as many as make `bytes`, but at most a quarter of a sample, since the rest of it is not
    /// old compared to what was not sampled; and no source after a rendition, since there may be other renditions.
    /// - Parameter isWhole: whether the sample holds all there is.
    static func victims(of sample: [Candidate], bytes: Int, isWhole: Bool) -> [Candidate] {
        let limit = isWhole ? sample.count : max(1, sample.count / 4)
        let ordered = sample.sorted { $0.rank < $1.rank }.prefix(limit)
        var left = bytes
        return ordered.prefix { candidate in
            defer { left -= candidate.size }
            return left > 0 && (isWhole || candidate.isRendition || ordered.first?.isRendition == false)
        }
    }

    /// Whether a use is worth noting: the last one noted lies more than a grain back, or in a future that a clock set
    /// back has made (F14).
    static func isWorthNoting(lastUse: Int64, now: Int64) -> Bool {
        let (age, overflow) = now.subtractingReportingOverflow(lastUse)
        return overflow || age >= grain || age <= -grain
    }
}
