import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Synchronization

/// A generation with its key. Closing it wipes the key, which makes the images on disk unreadable.
final class DiskGenerationStore: GenerationStore {
    let generation: Generation
    let files: ImageFiles
    private let ciphers: EntryCipherPool
    /// Nil after closing. Used only inside the gate.
    private let key: NIOLockedValueBox<Secret?>
    private let gate = DrainGroup()
    /// The owner's part of the additional authenticated data of each entry.
    let owner: [UInt8]

    init(generation: Generation, key: Secret, files: ImageFiles, ciphers: EntryCipherPool) {
        self.generation = generation
        self.key = NIOLockedValueBox(key)
        self.files = files
        self.ciphers = ciphers
        owner = EntryHeader.owner(of: generation)
    }

    func read(_ imageKey: ImageKey, framing: ReplyFraming) throws -> Image? {
        try whileOpen {
            do {
                return try withCipher { try read(try $0.address(of: imageKey), with: $0, framing: framing) }
            } catch {
                // No descriptors, no memory or an I/O error: the entry may be valid, so it stays.
                files.counters.count(.failedReads)
                return nil
            }
        }
    }

    func record(of imageKey: ImageKey) throws -> ImageRecord? {
        try whileOpen {
            do {
                return try withCipher {
                    try read(try $0.address(of: imageKey), with: $0, framing: .bare, isUse: false)?.record
                }
            } catch {
                return nil
            }
        }
    }

    func write(_ imageKey: ImageKey, _ image: Image, isCurrent: () -> Bool, committed: () -> Void) throws -> Bool {
        try whileOpen {
            try storeErrors("writing an image") {
                let (address, entry) = try seal(imageKey, image)
                return try entry.withUnsafeBytes { entry in
                    try files.write(
                        entry, at: address, in: generation, mayEvict: image.record.sourceDigest == nil,
                        isCurrent: isCurrent, committed: committed)
                }
            }
        }
    }

    /// Evicts outside the gate, so that a purge of this user does not wait for the eviction of other users' images.
    func makeRoom(keeping imageKey: ImageKey?) {
        // Usually there is room, and the name of the entry costs as much as a system call.
        guard files.mayExceedQuota(generation) else { return }
        do {
            let address = try imageKey.map { imageKey in
                try whileOpen { try withCipher { try $0.address(of: imageKey) } }
            }
            if try files.makeRoom(after: generation, keeping: address) { return }
        } catch {
            // The store is closed, or eviction failed. Exceeding a quota for a while is harmless.
        }
        files.maintenance.wake()
    }

    private func seal(_ imageKey: ImageKey, _ image: Image) throws -> (EntryAddress, entry: [UInt8]) {
        guard let record = ImageRecordCoding.encode(image.record) else {
            throw StoreError.failed("the image's URL is longer than 65,535 bytes")
        }
        let header = EntryHeader(recordLength: record.count, imageLength: image.bytes.count)
        let size = EntryHeader.overhead + record.count + image.bytes.count
        guard size <= files.costs.maximumEntry else {
            throw StoreError.noSpace("the image needs \(size) bytes; the limit is \(files.costs.maximumEntry)")
        }
        return try withCipher { cipher in
            let address = try cipher.address(of: imageKey)
            let entry = try [UInt8](unsafeUninitializedCapacity: size) { entry, count in
                let entry = UnsafeMutableRawBufferPointer(entry)
                header.write(to: entry)
                let sealed = UnsafeMutableRawBufferPointer(rebasing: entry[EntryHeader.sealedStart..<size])
                try header.withAuthenticatedData(of: owner, at: address) { authenticated in
                    try image.bytes.image.withUnsafeReadableBytes { image in
                        try record.withUnsafeBytes { record in
                            try cipher.seal(
                                image, record, authenticating: authenticated, into: sealed, random: files.random)
                        }
                    }
                }
                count = size
            }
            return (address, entry)
        }
    }

    func drop(_ imageKey: ImageKey, isCurrent: () -> Bool) throws {
        try whileOpen {
            try storeErrors("removing an image that the origin has deleted") {
                try files.remove(try withCipher { try $0.address(of: imageKey) }, of: generation) { _ in isCurrent() }
            }
        }
    }

    func remove(_ profiles: [OpaqueID], fence: (OpaqueID) -> Void, removed: (OpaqueID) -> Void) throws -> Usage {
        try whileOpen {
            try storeErrors("removing images") { () throws -> Usage in
                var usage = Usage()
                var failure = FirstFailure()
                for profile in profiles {
                    let name = try withCipher { try $0.names.profileName(of: profile) }
                    files.withLock(generation, name.bucket) {
                        fence(profile)
                        // Continue with the other profiles; the error is thrown at the end, so there is no receipt.
                        failure.attempt {
                            usage = usage + (try files.removeAll(of: name, in: generation))
                            removed(profile)
                        }
                    }
                }
                try failure.rethrow()
                return usage
            }
        }
    }

    var usage: Usage? { files.ledger.withLockedValue { $0.usage(of: generation.number) } }

    func close() {
        gate.drain()
        key.withLockedValue { $0 = nil }
        ciphers.removeAll(of: generation.number)
        files.disk.openEntries.removeAll(of: generation.number)
        // Open directories, 257 at most, are closed on discarding, so that a receipt does not wait for it.
    }

    func discard() {
        files.log.onFailure(
            "could not move the directory of an ended generation to the trash; will retry", .warning,
            ["uid": "\(generation.owner.uid)"]
        ) { try files.discard(generation) }
    }

    func whileOpen<Result>(_ body: () throws -> Result) throws -> Result {
        guard gate.enter() else { throw StoreError.closed }
        defer { gate.leave() }
        return try body()
    }

    func withCipher<Result>(_ body: (EntryCipher) throws -> Result) throws -> Result {
        guard let key = key.withLockedValue({ $0 }) else { throw StoreError.closed }
        let cipher = try ciphers.acquire(for: generation.number, key: key)
        defer { ciphers.release(cipher, for: generation.number) }
        return try body(cipher)
    }
}

extension DiskGenerationStore {
    /// The maximum size of an entry that is decrypted on an event loop, which takes about 40 µs.
    private static var maximumCachedRead: Int64 { 128 << 10 }
    /// The maximum size of a record that is kept in memory with an open file.
    private static var maximumKeptRecord: Int { 2 << 10 }

    /// Reads an entry if the kernel's caches hold all of it. Costs preadv2; openat2 and fstat too, unless the file is
    /// open (``OpenEntries``); none of them blocks on the disk. Leaves other cases to ``read(_:framing:)``: a directory
    /// that is not open, an invalid entry, a use to be recorded.
    func readCached(_ imageKey: ImageKey, framing: ReplyFraming) -> CachedRead {
        do {
            return try whileOpen {
                try withCipher { cipher in
                    let canReadCached = files.canReadCached.load(ordering: .relaxed)
                    guard canReadCached || generation.isNew else { return .unknown }
                    let key = OpenEntries.Key(generation: generation.number, imageKey: imageKey)
                    if let image = try readOpen(key, with: cipher, framing: framing) { return .image(image) }
                    let address = try cipher.address(of: imageKey)
                    if generation.isKnownEmpty(address.bucket) { return .nothing }
                    guard canReadCached, let image = try open(key, at: address, with: cipher, framing: framing) else {
                        return .unknown
                    }
                    return .image(image)
                }
            }
        } catch let error as SystemError where error.isUnknownCall {
            files.canReadCached.store(false, ordering: .relaxed)
            return .unknown
        } catch {
            // Not cached, missing or closed; a read that may block finds out.
            return .unknown
        }
    }

    /// Reads an entry whose file is open, and checks the file's status if that was not done in this second. Nil if it is
    /// not open, has been unlinked or linked from outside, or is invalid.
    private func readOpen(_ key: OpenEntries.Key, with cipher: EntryCipher, framing: ReplyFraming) throws -> Image? {
        guard let entry = files.disk.openEntries[key] else { return nil }
        let now = files.now()
        if !entry.isChecked(at: now) {
            let status = try entry.file.status()
            guard canReadCached(status, at: now) else {
                files.disk.openEntries.remove(entry)
                return nil
            }
            entry.markChecked(at: now)
        }
        return try image(
            in: entry.file, of: entry.size, at: entry.address, known: entry.sealed, with: cipher, framing: framing,
            read: Self.readCached)?.image
    }

    /// Opens an entry, reads it, and keeps its file open.
    private func open(
        _ key: OpenEntries.Key, at address: EntryAddress, with cipher: EntryCipher, framing: ReplyFraming
    ) throws -> Image? {
        let openEntries = files.disk.openEntries
        let changes = openEntries.changes
        // Opens by path from the generation's directory: keeping each bucket open would fill DirectoryCache.
        guard let directory = files.disk.directories[generation.key()] else { return nil }
        let file = try files.disk.openCached(address.path, in: directory)
        let now = files.now()
        let status = try file.status()
        guard canReadCached(status, at: now),
            let (image, sealed) = try image(
                in: file, of: Int(status.size), at: address, with: cipher, framing: framing, read: Self.readCached)
        else { return nil }
        guard openEntries.isEnabled else { return image }
        let isShort = Int(status.size) - image.bytes.count <= Self.maximumKeptRecord
        let entry = OpenEntry(
            OpenEntries.Key(generation: key.generation, imageKey: key.imageKey.detached()), address, file,
            size: Int(status.size), isShort ? sealed : nil, checked: now)
        openEntries.keep(entry, unlessChangedSince: changes)
        return image
    }

    private func canReadCached(_ status: FileStatus, at now: Int64) -> Bool {
        canBeEntry(status) && status.size <= Self.maximumCachedRead
            && !Eviction.shouldRecordUse(lastUse: status.modifiedSeconds, now: now)
    }

    private static func readCached(
        _ file: borrowing OpenFile, into buffer: UnsafeMutableRawBufferPointer
    ) throws(SystemError) -> Int {
        try file.readCached(into: buffer)
    }
}
