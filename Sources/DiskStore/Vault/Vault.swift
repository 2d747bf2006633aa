import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Synchronization
import ThumbnailCache

/// One generation with its key. When it is closed the key is wiped, and what lies in the directory is noise.
final class Vault: ImageVault {
    let generation: Generation
    let files: ImageFiles
    private let crypters: CrypterPool
    /// Nil once closed. Only used inside the gate.
    private let key: NIOLockedValueBox<Secret?>
    private let gate = DrainGroup()
    /// What the tag of each entry binds first: whose it is.
    let owner: [UInt8]

    init(generation: Generation, key: Secret, files: ImageFiles, crypters: CrypterPool) {
        self.generation = generation
        self.key = NIOLockedValueBox(key)
        self.files = files
        self.crypters = crypters
        owner = EntryHeader.owner(uid: generation.uid, name: generation.name)
    }

    func read(_ slot: Slot, framing: ReplyFraming) throws -> Image? {
        try reading { try read(try $0.address(of: slot), with: $0, framing: framing) }
    }

    func sizes(of profile: OpaqueID) throws -> [UInt16]? {
        try reading { try files.sizes(of: try $0.names.profileName(of: profile), in: generation) }
    }

    /// Nil also where the disk did not say: nobody must take it for a bucket in which there is none.
    private func reading<Result>(_ body: (Crypter) throws -> Result?) throws -> Result? {
        try whileOpen {
            do {
                return try withCrypter(body)
            } catch {
                // No descriptors, no memory, a disk that does not answer: nothing is known of the entry, so it stays.
                files.counters.count(.failedReads)
                return nil
            }
        }
    }

    func drop(_ slot: Slot, isCurrent: () -> Bool) throws {
        try whileOpen {
            try storeErrors("removing an image that the origin no longer has") {
                let address = try withCrypter { try $0.address(of: slot) }
                try files.withLock(generation, address.bucket) {
                    guard isCurrent(), let bucket = try files.existingDirectory(of: generation, bucket: address.bucket),
                        let status = try files.disk.status(of: address.fileName, in: bucket)
                    else { return }
                    try files.remove(address.fileName, status, from: bucket, address.bucket, of: generation)
                    files.tidyBucket(address.bucket, of: generation)
                }
            }
        }
    }

    func remove(_ profiles: [OpaqueID], fence: (OpaqueID) -> Void, removed: (OpaqueID) -> Void) throws -> Usage {
        try whileOpen {
            try storeErrors("removing images") { () throws -> Usage in
                var usage = Usage()
                var failure = FirstFailure()
                for profile in profiles {
                    let name = try withCrypter { try $0.names.profileName(of: profile) }
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

    var usage: Usage? { files.usage(of: generation) }

    func close() {
        gate.drain()
        key.withLockedValue { $0 = nil }
        crypters.removeAll(of: generation.number)
        // Its open directories, 257 at most, are closed when it is discarded: a receipt does not wait for that.
    }

    func discard() {
        files.log.attempt(
            "a dead generation could not be moved to the trash; the next sweep will", .warning,
            ["uid": "\(generation.uid)"]
        ) { try files.discard(generation) }
    }

    func whileOpen<Result>(_ body: () throws -> Result) throws -> Result {
        guard gate.enter() else { throw StoreError.closed }
        defer { gate.leave() }
        return try body()
    }

    func withCrypter<Result>(_ body: (Crypter) throws -> Result) throws -> Result {
        guard let key = key.withLockedValue({ $0 }) else { throw StoreError.closed }
        let crypter = try crypters.take(for: generation.number, key: key)
        defer { crypters.giveBack(crypter, for: generation.number) }
        return try body(crypter)
    }
}

extension Vault {
    /// Bytes of the largest entry that is opened on an event loop: it takes about 40 µs.
    private static var largestCachedRead: Int64 { 128 << 10 }

    /// One entry, as far as the kernel holds all of it. Costs openat2, fstat, preadv2 and close, none of which waits
    /// for the disk.
    ///
    /// Whatever is out of the ordinary is left to ``read(_:framing:)``, which may wait: a directory that is not open
    /// yet, an entry that is bad, a use that is to be noted.
    func readCached(_ slot: Slot, framing: ReplyFraming) -> CachedRead {
        do {
            return try whileOpen {
                try withCrypter { crypter in
                    let canReadCached = files.canReadCached.load(ordering: .relaxed)
                    guard canReadCached || generation.isNew else { return .unknown }
                    let address = EntryAddress(
                        profile: try crypter.names.profileName(of: slot.profile), size: slot.size)
                    if generation.holdsNothing(in: address.bucket) { return .nothing }
                    guard canReadCached, let image = try readCached(address, with: crypter, framing: framing) else {
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

    private func readCached(_ address: EntryAddress, with crypter: Crypter, framing: ReplyFraming) throws -> Image? {
        // One open directory a user, and not one for each bucket, of which a few users' would fill the cache of them.
        guard let directory = files.disk.directories[generation.key()] else { return nil }
        let file = try files.disk.openCached(address.path, in: directory)
        let status = try file.status()
        guard isInOrder(status), status.size <= Self.largestCachedRead,
            !Eviction.isWorthNoting(lastUse: status.modifiedSeconds, now: files.now())
        else { return nil }
        return try image(in: file, of: Int(status.size), at: address, with: crypter, framing: framing) {
            file, buffer throws(SystemError) in
            try file.readCached(into: buffer)
        }
    }
}
