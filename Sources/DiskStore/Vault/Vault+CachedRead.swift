import LinuxSupport
import NIOCore
import Synchronization
import ThumbnailCache

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
