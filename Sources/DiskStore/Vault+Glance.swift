import NIOCore
import Synchronization
import ThumbnailCache

extension Vault {
    /// Bytes of the largest entry that is opened on an event loop: it takes about 40 µs.
    private static var largestGlance: Int64 { 128 << 10 }

    /// One entry, as far as the kernel holds all of it. Costs openat2, fstat, preadv2 and close, none of which waits for the
    /// disk: 3 µs beside what opening the entry costs.
    ///
    /// Whatever is out of the ordinary is left to ``read(_:framing:)``, which may wait: a directory that is not open yet, an
    /// entry that is bad, a use that is to be noted.
    func glance(_ slot: Slot, framing: ReplyFraming) -> Image? {
        guard files.canGlance.load(ordering: .relaxed) else { return nil }
        do {
            return try whileOpen {
                try withCrypter { crypter in
                    let address = EntryAddress(
                        profile: try crypter.names.profileName(of: slot.profile), size: slot.size)
                    // One open directory a user, and not one for each bucket, of which a few users' would fill the cache of them.
                    let key = DirectoryCache.Key(generation: generation.number, bucket: nil)
                    guard let directory = files.disk.directories[key] else { return nil }
                    let file = try files.disk.openCached(address.path, in: directory)
                    let status = try file.status()
                    guard isInOrder(status), status.size <= Self.largestGlance, !isWorthNoting(status) else {
                        return nil
                    }
                    return try image(in: file, status, at: address, with: crypter, framing: framing) {
                        file, buffer throws(SystemError) in
                        try file.readCached(into: buffer)
                    }
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
}
