import LinuxSupport
import NIOCore
import Synchronization
import ThumbnailCache

extension Vault {
    /// Bytes of the largest entry that is opened on an event loop: it takes about 40 µs.
    private static var largestCachedRead: Int64 { 128 << 10 }

    /// Bytes of the longest record that stays in memory with an open entry.
    private static var longestRecordKept: Int { 2 << 10 }

    /// One entry, as far as the kernel holds all of it. Costs preadv2, and where the entry is not open yet openat2 and fstat before
    /// it, none of which waits for the disk.
    ///
    /// Whatever is out of the ordinary is left to ``read(_:framing:)``, which may wait: a directory that is not open yet, an
    /// entry that is bad, a use that is to be noted.
    func readCached(_ slot: Slot, framing: ReplyFraming) -> CachedRead {
        do {
            return try whileOpen {
                try withCrypter { crypter in
                    let canReadCached = files.canReadCached.load(ordering: .relaxed)
                    guard canReadCached || generation.isNew else { return .unknown }
                    let (open, now) = (files.disk.openEntries, files.now())
                    if let entry = open.entry(of: slot, in: generation.number, at: now) {
                        return CachedRead(try image(in: entry, with: crypter, framing: framing))
                    }
                    let changes = open.changes
                    let address = EntryAddress(
                        profile: try crypter.names.profileName(of: slot.profile), size: slot.size)
                    if generation.holdsNothing(in: address.bucket) { return .nothing }
                    guard canReadCached,
                        let (entry, image) = try opened(slot, at: address, at: now, with: crypter, framing: framing)
                    else { return .unknown }
                    open.keep(entry, ifNothingChangedSince: changes)
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

    private func opened(
        _ slot: Slot, at address: EntryAddress, at now: Int64, with crypter: Crypter, framing: ReplyFraming
    ) throws -> (OpenEntry, Image)? {
        // One open directory a user, and not one for each bucket, of which a few users' would fill the cache of them.
        guard let directory = files.disk.directories[generation.key()] else { return nil }
        let file = try files.disk.openCached(address.path, in: directory)
        let status = try file.status()
        guard isInOrder(status), status.size <= Self.largestCachedRead,
            !Eviction.isWorthNoting(lastUse: status.modifiedSeconds, now: now)
        else { return nil }
        let size = Int(status.size)
        let found = try image(
            in: file, of: size, at: address, with: crypter, framing: framing, read: Self.readFromPageCache)
        guard let (image, sealed) = found else { return nil }
        // A record is 100 bytes and its URLs and fields, of which a few may be long (I8).
        let isShort = size - image.bytes.count <= Self.longestRecordKept
        let entry = OpenEntry(
            file, size: size, sealed: isShort ? sealed : nil, generation: generation.number, slot: slot.detached(),
            address: address, openedAt: now)
        return (entry, image)
    }

    private func image(in entry: OpenEntry, with crypter: Crypter, framing: ReplyFraming) throws -> Image? {
        try image(
            in: entry.file, of: entry.size, at: entry.address, known: entry.sealed, with: crypter, framing: framing,
            read: Self.readFromPageCache)?.image
    }

    private static func readFromPageCache(
        _ file: borrowing OpenFile, into buffer: UnsafeMutableRawBufferPointer
    ) throws(SystemError) -> Int {
        try file.readCached(into: buffer)
    }
}

extension CachedRead {
    fileprivate init(_ image: Image?) { self = image.map { .image($0) } ?? .unknown }
}
