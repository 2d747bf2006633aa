import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

extension ImageFiles {
    /// Writes an entry to a temporary file in the generation's directory, and lets it appear under its name if it still
    /// may. Leaves nothing behind when it does not. See ``CacheCore/GenerationStore/write(_:_:isCurrent:committed:)``.
    /// - Parameter mayEvict: whether, on a full disk, other images of the user give way to the entry.
    func write(
        _ entry: UnsafeRawBufferPointer, at address: EntryAddress, in generation: Generation, mayEvict: Bool,
        isCurrent: () -> Bool, committed: () -> Void
    ) throws -> Bool {
        var isPlaced = false
        defer {
            // Made for this entry, maybe; it counts towards the quota.
            if !isPlaced { withLock(generation, address.bucket) { tidyBucket(address.bucket, of: generation) } }
        }
        let (temporary, directory) = try prepareOrMakeRoom(entry, at: address, in: generation, mayEvict)
        defer { if !isPlaced { removeTemporary(temporary, in: directory) } }
        try withLock(generation, address.bucket) {
            guard underWay.contains(temporary), isCurrent() else { return }
            let name = address.fileName
            let bucket = try madeDirectory(of: generation, bucket: address.bucket)
            if address.code != 0 { generation.noteSize() }
            let old = try disk.status(of: name, in: bucket)
            if old?.kind == .directory { try trash.take(name, from: bucket) }
            let replaced = old?.kind == .file ? old : nil
            try appear(temporary, in: directory, as: name, in: bucket, isSwap: replaced != nil)
            isPlaced = true
            let freed = replaced.map { costs.file($0.size) } ?? 0
            ledger.withLockedValue { ledger in
                ledger.add(
                    images: replaced == nil ? 1 : 0, bytes: costs.file(Int64(entry.count)) - freed,
                    to: generation.number, bucket: address.bucket)
            }
            committed()
        }
        return isPlaced
    }

    private typealias Prepared = (temporary: FileName, directory: Directory)

    /// On a full disk (F4, F5) trash goes first, then as many of this user's images as the entry needs. A directory that
    /// is open but no longer there takes no new files: somebody removed it, and it is looked up anew.
    private func prepareOrMakeRoom(
        _ entry: UnsafeRawBufferPointer, at address: EntryAddress, in generation: Generation, _ mayEvict: Bool
    ) throws -> Prepared {
        do {
            return try prepare(entry, at: address, in: generation)
        } catch let error as SystemError where error.isMissing {
            disk.directories.removeAll(of: generation.number)
        } catch let error as SystemError where error.isNoSpace {
            _ = try trash.emptySome(budget: 4 * Eviction.batch)
        }
        for _ in 0..<(mayEvict ? Self.mostEvictions : 0) {
            do {
                return try prepare(entry, at: address, in: generation)
            } catch let error as SystemError where error.isNoSpace {
                let size = costs.file(Int64(entry.count))
                // Where all of them would not do, none goes.
                guard ledger.withLockedValue({ $0.counted(of: generation.number).bytes }) >= size else { throw error }
                if try evict(from: generation, bytes: size, keeping: address).bytes == 0 { throw error }
            }
        }
        return try prepare(entry, at: address, in: generation)
    }

    /// How often room is made for an entry. Once does not always do: the entry may need an inode and a directory, and
    /// others write, too.
    private static let mostEvictions = 2

    private func prepare(
        _ entry: UnsafeRawBufferPointer, at address: EntryAddress, in generation: Generation
    ) throws -> Prepared {
        let directory = try madeDirectory(of: generation)
        try removeLeftOver(of: generation, in: directory)
        let temporary = disk.temporaries.make()
        try withLock(generation, address.bucket) {
            // Before anything is written, so that a full disk shows while there is nothing to undo.
            _ = try madeDirectory(of: generation, bucket: address.bucket)
            // Noted before it is there, and not while a purge of its profile is under way: that has either overtaken it
            // or is over.
            underWay.begin(temporary, of: address.profile, in: generation)
        }
        var isMade = false
        do {
            var file = try disk.open(temporary, in: directory, for: .creating)
            isMade = true
            // A purge that came before the file was there could not remove it; nor has it anything to fear from an
            // empty one.
            guard underWay.contains(temporary) else { return (temporary, directory) }
            try file.write(entry)
            try file.close()
        } catch {
            if isMade {
                removeTemporary(temporary, in: directory)
            } else {
                // There is none, and on a read-only disk there would be one such note for each attempt.
                underWay.end(temporary)
            }
            throw error
        }
        return (temporary, directory)
    }

    /// Puts the temporary file under its name, whatever is there.
    ///
    /// Over another file by swapping the two: ext4 sends a file that is renamed over another to the disk at once
    /// (auto_da_alloc, ext4(5)), which nobody here asks for, and 8 KiB put again and again took 2.7 times as long. A
    /// kill before the older one is removed leaves it behind as a temporary file, which the next start removes. A power
    /// cut within the half minute that the kernel keeps what was written takes the older image along: a miss, as an
    /// image that was PUT may be.
    private func appear(
        _ temporary: FileName, in directory: Directory, as name: FileName, in bucket: Directory, isSwap: Bool
    ) throws {
        if isSwap {
            do throws(SystemError) {
                try disk.exchange(temporary, in: directory, with: name, in: bucket)
                return removeTemporary(temporary, in: directory)
            } catch {
                // Not every file system can swap; every one can rename.
            }
        }
        try disk.rename(temporary, in: directory, to: name, in: bucket)
        underWay.end(temporary)
    }

    /// What cannot be removed stays noted: a purge of its profile tries again, or gives no receipt. It does not go to
    /// the trash, where it would outlive such a receipt.
    private func removeTemporary(_ name: FileName, in directory: Directory) {
        do {
            try remove(name, from: directory)
        } catch {
            underWay.leaveOver(name)
            maintenance.retryLater()
            log.warning(
                "a temporary file could not be removed; it is tried again later", metadata: ["error": "\(error)"])
        }
    }

    /// Removes what could not be removed before. For maintenance, which has no directory at hand.
    func removeLeftOver(of generation: Generation) throws {
        if underWay.leftOver(in: generation).isEmpty { return }
        guard let directory = try existingDirectory(of: generation) else { return }
        try removeLeftOver(of: generation, in: directory)
    }

    private func removeLeftOver(of generation: Generation, in directory: Directory) throws(SystemError) {
        for file in underWay.leftOver(in: generation) { try remove(file, from: directory) }
    }

    private func remove(_ temporary: FileName, from directory: Directory) throws(SystemError) {
        try disk.unlinkIfPresent(temporary, in: directory)
        // Only now: else nobody would try again.
        underWay.end(temporary)
    }

    /// Removes an entry that turned out bad, unless something else stands there by now. Counted.
    /// - Parameter status: the file that was bad; nil when it could not even be opened.
    func reject(_ address: EntryAddress, status: FileStatus?, in generation: Generation) {
        counters.count(.rejectedEntries)
        log.attempt("a bad entry could not be removed") {
            try remove(address, of: generation) { found in
                if let status { return found.isSameFile(as: status) }
                // What could not be opened as a file and is one now has been replaced in between.
                return found.kind != .file || found.owner != geteuid()
            }
        }
    }

    /// Removes what stands at an address, if anything does.
    /// - Parameter mayGo: whether it may go; asked with the commit lock held.
    func remove(_ address: EntryAddress, of generation: Generation, if mayGo: (FileStatus) -> Bool) throws {
        try withLock(generation, address.bucket) {
            guard let bucket = try existingDirectory(of: generation, bucket: address.bucket),
                let found = try disk.status(of: address.fileName, in: bucket), mayGo(found)
            else { return }
            try remove(address.fileName, found, from: bucket, address.bucket, of: generation)
            tidyBucket(address.bucket, of: generation)
        }
    }

    /// Removes every size of a profile, durably. The commit lock is held.
    func removeAll(of profile: HashedName, in generation: Generation) throws -> Usage {
        guard let directory = try existingDirectory(of: generation) else { return Usage() }
        try removeLeftovers(of: generation, in: directory)
        for file in underWay.files(of: profile) { try remove(file, from: directory) }
        let removed = try removeEntries(of: profile, in: generation)
        // Where the bucket went too, it is this directory that leads to the entry no more. And where it did not, it is
        // this one that leads to no temporary file.
        try disk.sync(directory, .images(generation.key()))
        return removed
    }

    private func removeEntries(of profile: HashedName, in generation: Generation) throws -> Usage {
        guard let bucket = try existingDirectory(of: generation, bucket: profile.bucket) else { return Usage() }
        var removed = Usage()
        var failure = FirstFailure()
        let prefix = profile.fileName.bytes + [UInt8(ascii: ".")]
        for entry in try disk.names(in: bucket) where entry.name.bytes.starts(with: prefix) {
            failure.attempt {
                guard let status = try disk.status(of: entry.name, in: bucket) else { return }
                try remove(entry.name, status, from: bucket, profile.bucket, of: generation)
                removed = removed + Usage(images: 1, bytes: costs.file(status.size))
            }
        }
        try failure.rethrow()
        if try removeDirectoryIfEmpty(of: generation, bucket: profile.bucket) { return removed }
        // Also when nothing was found: an entry evicted a moment ago would be back after a power cut (I4).
        try disk.sync(bucket, .images(generation.key(profile.bucket)))
        return removed
    }

    /// Until a generation was tidied up, images may lie in it that a run before this one swapped out and was killed
    /// before it removed them: whole, sealed under a key that lives on, and of whatever profile. They go before any
    /// profile's receipt (I3).
    private func removeLeftovers(of generation: Generation, in directory: Directory) throws {
        if generation.isTidy { return }
        let stale = try disk.names(in: directory).filter {
            disk.temporaries.isStale($0.name) && $0.kind != .directory
        }
        for entry in stale { try disk.unlinkIfPresent(entry.name, in: directory) }
        if !stale.isEmpty { try disk.sync(directory) }
    }

    /// Removes a name from a bucket and from the account. The commit lock is held.
    func remove(
        _ name: FileName, _ status: FileStatus, from bucket: Directory, _ number: UInt8, of generation: Generation
    ) throws {
        if status.kind == .directory { return try trash.take(name, from: bucket) }
        try disk.unlink(name, in: bucket)
        guard status.kind == .file else { return }
        ledger.withLockedValue {
            $0.add(images: -1, bytes: -costs.file(status.size), to: generation.number, bucket: number)
        }
    }

    /// Names of a bucket that are looked through for a profile's entries: some twelve system calls' worth. A bucket holds
    /// one in 256 of a user's images, so nobody who has fewer than a million has more.
    static let mostNamesLookedThrough = 4_096

    /// Where a profile has entries. Beside writes and removals going on: what it says was so at some moment.
    func addresses(of profile: HashedName, in generation: Generation) throws -> [EntryAddress] {
        guard !generation.holdsNothing(in: profile.bucket),
            let bucket = try existingDirectory(of: generation, bucket: profile.bucket)
        else { return [] }
        let prefix = profile.fileName.bytes
        return try disk.names(in: bucket, limit: Self.mostNamesLookedThrough)
            .compactMap { $0.name.bytes.starts(with: prefix) ? EntryAddress($0.name) : nil }
    }
}
