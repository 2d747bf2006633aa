import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Synchronization

/// One generation with its key. When it is closed the key is wiped, and what lies in the directory is noise.
final class DiskGenerationStore: GenerationStore {
    let generation: Generation
    let files: ImageFiles
    private let ciphers: EntryCipherPool
    /// Nil once closed. Only used inside the gate.
    private let key: NIOLockedValueBox<Secret?>
    private let gate = DrainGroup()
    /// What the tag of each entry binds first: whose it is.
    let owner: [UInt8]

    init(generation: Generation, key: Secret, files: ImageFiles, ciphers: EntryCipherPool) {
        self.generation = generation
        self.key = NIOLockedValueBox(key)
        self.files = files
        self.ciphers = ciphers
        owner = EntryHeader.owner(of: generation)
    }

    func read(_ imageKey: ImageKey, framing: ReplyFraming) throws -> Image? {
        try reading { try read(try $0.address(of: imageKey), with: $0, framing: framing) }
    }

    func imageKeys(of profile: OpaqueID) throws -> [ImageKey]? {
        let profile = profile.detached()
        return try reading { cipher in
            try files.addresses(of: try cipher.names.profileName(of: profile), in: generation)
                .map { ImageKey(profile: profile, code: $0.code) }
        }
    }

    /// Nil also where the disk did not say: nobody must take it for a bucket in which there is none.
    private func reading<Result>(_ body: (EntryCipher) throws -> Result?) throws -> Result? {
        try whileOpen {
            do {
                return try withCipher(body)
            } catch {
                // No descriptors, no memory, a disk that does not answer: nothing is known of the entry, so it stays.
                files.counters.count(.failedReads)
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
                        entry, at: address, in: generation, mayEvict: image.record.rendered == nil,
                        isCurrent: isCurrent, committed: committed)
                }
            }
        }
    }

    /// Evicts outside of the gate: a purge of this user does not wait until others' images are gone.
    func makeRoom(keeping imageKey: ImageKey?) {
        do {
            let address = try imageKey.map { imageKey in
                try whileOpen { try withCipher { try $0.address(of: imageKey) } }
            }
            if try files.makeRoom(after: generation, keeping: address) { return }
        } catch {
            // Closed, or it cannot be done now. To be over a quota for a while hurts nobody.
        }
        files.maintenance.wake()
    }

    private func seal(_ imageKey: ImageKey, _ image: Image) throws -> (EntryAddress, entry: [UInt8]) {
        guard let record = ImageRecordCoding.encode(image.record) else {
            throw StoreError.failed("the image's URL is longer than 65,535 bytes")
        }
        let header = EntryHeader(recordLength: record.count, imageLength: image.bytes.count)
        let size = EntryHeader.overhead + record.count + image.bytes.count
        guard size <= files.costs.longest else {
            throw StoreError.noSpace("the image takes \(size) bytes, over the quota of \(files.costs.longest)")
        }
        return try withCipher { cipher in
            let address = try cipher.address(of: imageKey)
            let entry = try [UInt8](unsafeUninitializedCapacity: size) { entry, count in
                let entry = UnsafeMutableRawBufferPointer(entry)
                header.write(to: entry)
                let box = UnsafeMutableRawBufferPointer(rebasing: entry[EntryHeader.boxStart..<size])
                try header.withBound(of: owner, at: address) { bound in
                    try image.bytes.image.withUnsafeReadableBytes { image in
                        try record.withUnsafeBytes { record in
                            try cipher.seal(image, record, bound: bound, into: box, random: files.random)
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
            try storeErrors("removing an image that the origin no longer has") {
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
                        // Where it fails the others are removed all the same; only there is no receipt.
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
        // Its open directories, 257 at most, are closed when it is discarded: a receipt does not wait for that.
    }

    func discard() {
        files.log.attempt(
            "a dead generation could not be moved to the trash; it is tried again later", .warning,
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
        let cipher = try ciphers.take(for: generation.number, key: key)
        defer { ciphers.giveBack(cipher, for: generation.number) }
        return try body(cipher)
    }
}

extension DiskGenerationStore {
    /// Bytes of the largest entry that is opened on an event loop: it takes about 40 µs.
    private static var largestCachedRead: Int64 { 128 << 10 }

    /// One entry, as far as the kernel holds all of it. Costs openat2, fstat, preadv2 and close, none of which waits
    /// for the disk.
    ///
    /// Whatever is out of the ordinary is left to ``read(_:framing:)``, which may wait: a directory that is not open
    /// yet, an entry that is bad, a use that is to be noted.
    func readCached(_ imageKey: ImageKey, framing: ReplyFraming) -> CachedRead {
        do {
            return try whileOpen {
                try withCipher { cipher in
                    let canReadCached = files.canReadCached.load(ordering: .relaxed)
                    guard canReadCached || generation.isNew else { return .unknown }
                    let address = try cipher.address(of: imageKey)
                    if generation.holdsNothing(in: address.bucket) { return .nothing }
                    guard canReadCached, let image = try readCached(address, with: cipher, framing: framing) else {
                        return .unknown
                    }
                    return .image(image)
                }
            }
        } catch let error as SystemError where error.isUnknownCall {
            files.canReadCached.store(false, ordering: .relaxed)
            return .unknown
        } catch {
            // Not in memory, not there, or no more ours: to be found out by whoever may wait.
            return .unknown
        }
    }

    private func readCached(_ address: EntryAddress, with cipher: EntryCipher, framing: ReplyFraming) throws -> Image? {
        // One open directory a user, and not one for each bucket, of which a few users' would fill the cache of them.
        guard let directory = files.disk.directories[generation.key()] else { return nil }
        let file = try files.disk.openCached(address.path, in: directory)
        let status = try file.status()
        guard isInOrder(status), status.size <= Self.largestCachedRead,
            !Eviction.isWorthNoting(lastUse: status.modifiedSeconds, now: files.now())
        else { return nil }
        return try image(in: file, of: Int(status.size), at: address, with: cipher, framing: framing) {
            file, buffer throws(SystemError) in
            try file.readCached(into: buffer)
        }
    }
}
