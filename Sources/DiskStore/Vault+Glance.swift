import NIOCore
import Synchronization
import ThumbnailCache

extension Vault {
    /// Bytes of the largest entry that is opened on an event loop: it takes about 40 µs.
    private static var largestGlance: Int64 { 128 << 10 }

    /// One entry, as far as the kernel holds all of it. Costs preadv2, and where the entry is not open yet openat2 and fstat before
    /// it, none of which waits for the disk.
    ///
    /// Whatever is out of the ordinary is left to ``read(_:framing:)``, which may wait: a directory that is not open yet, an
    /// entry that is bad, a use that is to be noted.
    func glance(_ slot: Slot, framing: ReplyFraming) -> Image? {
        guard files.canGlance.load(ordering: .relaxed) else { return nil }
        do {
            return try whileOpen {
                try withCrypter { crypter in
                    let (open, now) = (files.disk.openEntries, files.now())
                    if let entry = open.entry(of: slot, in: generation.number, at: now) {
                        return try image(in: entry, with: crypter, framing: framing)
                    }
                    let changes = open.changes
                    guard let entry = try opened(slot, with: crypter, now),
                        let image = try image(in: entry, with: crypter, framing: framing)
                    else { return nil }
                    open.keep(entry, ifNothingChangedSince: changes)
                    return image
                }
            }
        } catch let error as SystemError where error.isUnknownCall {
            files.canGlance.store(false, ordering: .relaxed)
            return nil
        } catch {
            // Not in memory, not there, or no more ours: to be found out by whoever may wait.
            return nil
        }
    }

    private func opened(_ slot: Slot, with crypter: Crypter, _ now: Int64) throws -> OpenEntry? {
        let address = EntryAddress(profile: try crypter.names.profileName(of: slot.profile), size: slot.size)
        // One open directory a user, and not one for each bucket, of which a few users' would fill the cache of them.
        let key = DirectoryCache.Key(generation: generation.number, bucket: nil)
        guard let directory = files.disk.directories[key] else { return nil }
        let file = try files.disk.openCached(address.path, in: directory)
        let status = try file.status()
        guard isInOrder(status), status.size <= Self.largestGlance,
            !Eviction.isWorthNoting(lastUse: status.modifiedSeconds, now: now)
        else { return nil }
        return OpenEntry(
            file, size: Int(status.size), generation: generation.number, slot: slot.detached(), address: address,
            openedAt: now)
    }

    private func image(in entry: OpenEntry, with crypter: Crypter, framing: ReplyFraming) throws -> Image? {
        try image(in: entry.file, of: entry.size, at: entry.address, with: crypter, framing: framing) {
            file, buffer throws(SystemError) in
            try file.readCached(into: buffer)
        }
    }
}
