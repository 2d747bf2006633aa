/// One generation of one user's images. Owns its directory and its key.
///
/// Safe from any thread. Each call may block on the disk.
public protocol GenerationStore: AnyObject, Sendable {
    /// The decrypted and verified image of a key; nil if missing, torn, altered or unreadable (I5).
    ///
    /// A bad entry is removed and counted. Throws only ``StoreError/closed``.
    func read(_ imageKey: ImageKey, framing: ReplyFraming) throws -> Image?

    /// The record of an image, without an effect on the entry: a bad one stays, and the read counts as no use.
    ///
    /// Throws only ``StoreError/closed``.
    func record(of imageKey: ImageKey) throws -> ImageRecord?

    /// Removes a profile's least recently used renditions until at most `most` remain.
    func trimRenditions(of profile: OpaqueID, keeping imageKey: ImageKey, most: Int) throws

    /// Like ``read(_:framing:)``, but never blocks: the result is `unknown` if the entry is not in the page cache or is
    /// too large to decrypt on an event loop.
    ///
    /// Removes and counts nothing. The only call that may run on an event loop.
    func readCached(_ imageKey: ImageKey, framing: ReplyFraming) -> CachedRead

    /// Encrypts and writes an image. Returns false, and leaves nothing on disk, if the write is no longer current.
    ///
    /// `isCurrent` is called with the key's commit lock held, before each attempt to write the image to a temporary file
    /// and right before the entry gets its name. If the profile was removed in between, the write is not current even if
    /// `isCurrent` last returned true. `committed` is called with the same lock held, right after the entry got its name,
    /// and must be short.
    func write(_ imageKey: ImageKey, _ image: Image, isCurrent: () -> Bool, committed: () -> Void) throws -> Bool

    /// Evicts images while a quota is exceeded. Called after each write. May take long.
    /// - Parameter imageKey: the written image, which is evicted last; nil for a rendition, since renditions are
    ///   evicted before sources.
    func makeRoom(keeping imageKey: ImageKey?)

    /// Removes every size of the profiles.
    ///
    /// For each profile, with its commit lock held, `fence` is called before its entries are removed, so that no write
    /// that began earlier can add one later, and `removed` afterwards.
    /// - Throws: if an entry could not be removed.
    func remove(_ profiles: [OpaqueID], fence: (OpaqueID) -> Void, removed: (OpaqueID) -> Void) throws -> Usage

    /// Removes the image of a key, if any, unless `isCurrent`, called with the key's commit lock held, returns false.
    func drop(_ imageKey: ImageKey, isCurrent: () -> Bool) throws

    /// The stored images; nil until they have been counted after a start, and after ``discard()``.
    var usage: Usage? { get }

    /// Rejects new work, waits for work in progress, then wipes the keys. Idempotent.
    ///
    /// Later reads and writes throw ``StoreError/closed``.
    func close()

    /// Moves the closed generation's directory to the trash, which is deleted in the background.
    ///
    /// Called after the commit that ended the generation. After a failure, the sweep at the next start removes it.
    func discard()
}

public enum CachedRead: Sendable {
    case image(Image)
    /// The profile had no image of any size at some moment during the call.
    case nothing
    /// Only a blocking read can tell.
    case unknown
}
