import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers

extension ImageFiles {
    /// Writes an entry to a temporary file and commits it under its name if it is still current. Otherwise leaves
    /// nothing behind. See ``CacheCore/GenerationStore/write(_:_:isCurrent:committed:)``.
    /// - Parameter mayEvict: whether a full disk lets the entry replace other images of the user.
    func write(
        _ entry: UnsafeRawBufferPointer, at address: EntryAddress, in generation: Generation, mayEvict: Bool,
        isCurrent: () -> Bool, committed: () -> Void
    ) throws -> Bool {
        var isPlaced = false
        defer {
            // The bucket may have been created for this entry, and counts towards the quota.
            if !isPlaced {
                withLock(generation, address.bucket) { removeBucketIfEmpty(address.bucket, of: generation) }
            }
        }
        guard let (temporary, bucket) = try prepareOrMakeRoom(entry, at: address, in: generation, mayEvict, isCurrent)
        else { return false }
        defer { if !isPlaced { removeTemporary(temporary, in: bucket) } }
        try withLock(generation, address.bucket) {
            guard temporaryFiles.contains(temporary), isCurrent() else { return }
            let name = address.fileName
            if !address.isUnsized { generation.markSized() }
            let old = try disk.status(of: name, in: bucket)
            if old?.kind == .directory { try trash.move(name, from: bucket) }
            let replaced = old?.kind == .file ? old : nil
            try renameToFinalName(temporary, to: name, in: bucket, isSwap: replaced != nil)
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

    private typealias Prepared = (temporary: FileName, bucket: Directory)

    /// On a full disk, deletes trash and then evicts as many of this user's images as the entry needs (F4, F5). If the
    /// open directory has been removed, opens it again.
    private func prepareOrMakeRoom(
        _ entry: UnsafeRawBufferPointer, at address: EntryAddress, in generation: Generation, _ mayEvict: Bool,
        _ isCurrent: () -> Bool
    ) throws -> Prepared? {
        do {
            return try prepare(entry, at: address, in: generation, isCurrent)
        } catch let error as SystemError where error.isMissing {
            disk.directories.removeAll(of: generation.number)
        } catch let error as SystemError where error.isNoSpace {
            _ = try trash.emptySome(budget: 4 * Eviction.batch)
        }
        for _ in 0..<(mayEvict ? Self.maximumEvictions : 0) {
            do {
                return try prepare(entry, at: address, in: generation, isCurrent)
            } catch let error as SystemError where error.isNoSpace {
                let size = costs.file(Int64(entry.count))
                // Evicting everything would not make enough room.
                guard ledger.withLockedValue({ $0.counted(of: generation.number).bytes }) >= size else { throw error }
                if try evict(from: generation, bytes: size, keeping: address).bytes == 0 { throw error }
            }
        }
        return try prepare(entry, at: address, in: generation, isCurrent)
    }

    /// Once may not suffice: the entry may need an inode and a directory, and other threads write, too.
    private static let maximumEvictions = 2

    /// Writes the temporary file. Returns nil without a file if the entry is no longer current.
    ///
    /// The file is in the bucket of the entry. A rename between directories takes a lock of the whole file system, so
    /// writers would wait for each other.
    private func prepare(
        _ entry: UnsafeRawBufferPointer, at address: EntryAddress, in generation: Generation, _ isCurrent: () -> Bool
    ) throws -> Prepared? {
        try retryFailedRemovals(of: generation, includingEarlierRuns: false)
        let temporary = disk.temporaries.make()
        var created: OpenFile?
        let bucket = try locks.withLock(for: generation.key(address.bucket)) { () -> Directory? in
            guard isCurrent() else { return nil }
            let bucket = try openOrCreateDirectory(of: generation, bucket: address.bucket)
            created = try disk.open(temporary, in: bucket, for: .creating)
            // An earlier purge of the profile has made `isCurrent` false, and a later one finds the registration, since
            // both hold the commit lock. Without the registration, a kill after the receipt could leave a file that the
            // current key opens (F78).
            temporaryFiles.register(temporary, of: address.profile, in: generation)
            return bucket
        }
        guard let bucket, var file = created.take() else { return nil }
        do {
            try file.write(entry)
            try file.close()
        } catch {
            removeTemporary(temporary, in: bucket)
            throw error
        }
        return (temporary, bucket)
    }

    /// Moves the temporary file to its name.
    ///
    /// An existing file is swapped, not replaced: ext4 flushes a file that is renamed over another (auto_da_alloc,
    /// ext4(5)), which made repeated PUTs of 8 KiB 2.7 times slower. A kill before the old file is removed leaves a
    /// temporary file, which the next start removes. A power cut within 30 s may lose both, which is a miss.
    private func renameToFinalName(
        _ temporary: FileName, to name: FileName, in bucket: Directory, isSwap: Bool
    ) throws {
        if isSwap {
            do throws(SystemError) {
                try disk.exchange(temporary, with: name, in: bucket)
                return removeTemporary(temporary, in: bucket)
            } catch {
                // The file system cannot swap names.
            }
        }
        try disk.rename(temporary, in: bucket, to: name, in: bucket)
        temporaryFiles.unregister(temporary)
    }

    /// Removes a temporary file. If this fails, a purge of its profile retries or gives no receipt; for a file of an
    /// earlier run, a purge of any profile in the bucket. Not moved to the trash, where it would survive such a purge.
    func removeTemporary(_ name: FileName, in bucket: Directory) {
        do {
            try remove(name, from: bucket)
        } catch {
            temporaryFiles.markLeftOver(name)
            maintenance.retryLater()
            log.warning("could not remove a temporary file; will retry", metadata: ["error": "\(error)"])
        }
    }

    /// Removes temporary files that could not be removed before.
    /// - Parameter includingEarlierRuns: false for writers: files of earlier runs do not become more, so they need not
    ///   prevent writes.
    func retryFailedRemovals(of generation: Generation, includingEarlierRuns: Bool = true) throws {
        var failure = FirstFailure()
        for (file, number) in temporaryFiles.leftOver(in: generation, includingEarlierRuns: includingEarlierRuns) {
            failure.attempt {
                if let bucket = try existingDirectory(of: generation, bucket: number) {
                    try remove(file, from: bucket)
                } else {
                    temporaryFiles.unregister(file)
                }
            }
        }
        try failure.rethrow()
    }

    private func remove(_ temporary: FileName, from bucket: Directory) throws(SystemError) {
        try disk.unlinkIfPresent(temporary, in: bucket)
        // Only after success, so that a failure is retried.
        temporaryFiles.unregister(temporary)
    }

    /// Removes and counts an invalid entry, unless it has been replaced.
    /// - Parameter status: the invalid file; nil if it could not be opened.
    func reject(_ address: EntryAddress, status: FileStatus?, in generation: Generation) {
        counters.count(.rejectedEntries)
        log.onFailure("could not remove an invalid entry") {
            try remove(address, of: generation) { found in
                if let status { return found.isSameFile(as: status) }
                // A plain file that belongs to us has replaced the one that could not be opened.
                return found.kind != .file || found.owner != geteuid()
            }
        }
    }

    /// Removes the entry at an address if it exists.
    /// - Parameter mayGo: decides with the commit lock held.
    func remove(_ address: EntryAddress, of generation: Generation, if mayGo: (FileStatus) -> Bool) throws {
        try withLock(generation, address.bucket) {
            guard let bucket = try existingDirectory(of: generation, bucket: address.bucket),
                let found = try disk.status(of: address.fileName, in: bucket), mayGo(found)
            else { return }
            try remove(address.fileName, found, from: bucket, address.bucket, of: generation)
            removeBucketIfEmpty(address.bucket, of: generation)
        }
    }

    /// Removes all sizes of a profile durably. The commit lock is held.
    func removeAll(of profile: HashedName, in generation: Generation) throws -> Usage {
        guard let directory = try existingDirectory(of: generation) else { return Usage() }
        let removed = try removeEntries(of: profile, in: generation)
        // Makes the removal of the bucket durable.
        try disk.sync(directory, .images(generation.key()))
        return removed
    }

    private func removeEntries(of profile: HashedName, in generation: Generation) throws -> Usage {
        guard let bucket = try existingDirectory(of: generation, bucket: profile.bucket) else { return Usage() }
        var removed = Usage()
        var failure = FirstFailure()
        for file in temporaryFiles.files(of: profile) { failure.attempt { try remove(file, from: bucket) } }
        let prefix = profile.fileName.bytes + [UInt8(ascii: ".")]
        for entry in try disk.names(in: bucket) {
            // After a kill, a temporary file may contain an image of the profile (I3).
            if disk.temporaries.isStale(entry.name), entry.kind != .directory {
                failure.attempt { try remove(entry.name, from: bucket) }
            }
            guard entry.name.bytes.starts(with: prefix) else { continue }
            failure.attempt {
                guard let status = try disk.status(of: entry.name, in: bucket) else { return }
                try remove(entry.name, status, from: bucket, profile.bucket, of: generation)
                removed = removed + Usage(images: 1, bytes: costs.file(status.size))
            }
        }
        try failure.rethrow()
        if try removeDirectoryIfEmpty(of: generation, bucket: profile.bucket) { return removed }
        // Even if nothing was found: an entry evicted a moment ago would return after a power cut (I4).
        try disk.sync(bucket, .images(generation.key(profile.bucket)))
        return removed
    }

    /// Removes an entry from a bucket and from the ledger. The commit lock is held.
    func remove(
        _ name: FileName, _ status: FileStatus, from bucket: Directory, _ number: UInt8, of generation: Generation
    ) throws {
        if status.kind == .directory { return try trash.move(name, from: bucket) }
        try disk.unlink(name, in: bucket)
        guard status.kind == .file else { return }
        ledger.withLockedValue {
            $0.add(images: -1, bytes: -costs.file(status.size), to: generation.number, bucket: number)
        }
    }

    /// Maximum number of names searched in a bucket, which takes some 12 system calls. A bucket contains 1/256 of a
    /// user's images, so this suffices for a million images.
    static let maximumNamesSearched = 4_096

    /// Returns the addresses of a profile's entries. Concurrent writes and removals may be reflected or not.
    func addresses(of profile: HashedName, in generation: Generation) throws -> [EntryAddress] {
        guard !generation.isKnownEmpty(profile.bucket),
            let bucket = try existingDirectory(of: generation, bucket: profile.bucket)
        else { return [] }
        let prefix = profile.fileName.bytes
        return try disk.names(in: bucket, limit: Self.maximumNamesSearched)
            .compactMap { $0.name.bytes.starts(with: prefix) ? EntryAddress($0.name) : nil }
    }
}
