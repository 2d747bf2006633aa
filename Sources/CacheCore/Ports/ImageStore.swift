import LinuxSupport
import NIOCore

/// Where logins and images are kept, as the domain needs it. Every call may block on the disk: none is for a loop.
public protocol ImageStore: Sendable {
    /// What the epochs of this start are counted from: more than any start before has counted up to. Below 2^53 - 2^32.
    var epochBase: UInt64 { get }

    /// The login of an owner as the disk has it, with the generation store of its generation; nil when not logged in.
    func load(_ owner: Owner) throws -> (record: LoginRecord, generationStore: any GenerationStore)?

    /// The uids that have somebody logged in, and perhaps some that have not any more. Costs one directory listing.
    func uids() throws -> [UInt32]

    /// The users of a uid that are logged in. Costs one read per user.
    func users(of uid: UInt32) throws -> [OpaqueID]

    /// How many users of a uid are logged in. Costs one directory listing.
    func countUsers(of uid: UInt32) throws -> Int

    /// Makes durable what was found of a uid's log-ins, or found missing: a run before this one may have left it in
    /// memory only. To be called before anything is promised that no commit stands behind. Of a uid that has no
    /// directory nothing is left to do: the directory goes when the last key in it was destroyed durably. Costs a
    /// look-up from the second time on.
    func makeDurable(_ uid: UInt32) throws

    /// Makes a log-in durable: sessions first, then the key file, the commit point. The owner is not logged in.
    func commitLogin(_ owner: Owner, _ login: LoginRecord) throws -> any GenerationStore

    /// Makes a change of sessions, origin or token of a logged-in owner durable.
    func commitSessions(_ owner: Owner, _ login: LoginRecord) throws

    /// Makes a new generation the owner's only one, durably; what the old one held is unreadable when this returns.
    /// The old generation store was closed before. Returns the generation store of the new generation.
    func commitPurge(_ owner: Owner) throws -> any GenerationStore

    /// Destroys the owner's keys and login, durably. The generation store was closed before. Not logged in: does nothing.
    func commitLogout(_ owner: Owner) throws

    /// SHA-256 of an image's bytes.
    func digest(of image: ByteBuffer) -> ImageDigest
}

/// What a log-in consists of, as it is kept, sealed, across restarts.
public struct LoginRecord: Sendable, Equatable {
    /// Sessions that outlive their connection. One with HOLD is never kept: its connection cannot survive a restart.
    public var sessions: Set<OpaqueID>
    /// The origin named at log-in; nil for the default one.
    public var origin: String?
    /// For downloads.
    public var tokens: LoginTokens
    /// Seconds since 1970.
    public var loggedInAt: Int64

    public init(
        sessions: Set<OpaqueID> = [], origin: String? = nil, token: Secret? = nil, refresh: Secret? = nil,
        loggedInAt: Int64
    ) {
        self.sessions = sessions
        self.origin = origin
        self.tokens = LoginTokens(access: token, refresh: refresh)
        self.loggedInAt = loggedInAt
    }
}

/// One generation of one user's images: the only thing that knows its directory and its key.
///
/// Safe from any thread. Each call may block on the disk.
public protocol GenerationStore: AnyObject, Sendable {
    /// The image in an image key, opened and verified, or nil: missing, torn, tampered with or unreadable (I5; a bad entry is
    /// removed and counted). Throws only ``StoreError/closed``.
    func read(_ imageKey: ImageKey, framing: ReplyFraming) throws -> Image?

    /// The image keys in which there may be images of a profile, in no order. Not all of them where the profile shares its
    /// bucket on disk with more images than are looked through. Nil where the disk did not say: then nothing is known.
    /// Throws only ``StoreError/closed``.
    func imageKeys(of profile: OpaqueID) throws -> [ImageKey]?

    /// Removes the least recently used of a profile's renditions, as far as there are more than `most`.
    func trimRenditions(of profile: OpaqueID, keeping imageKey: ImageKey, most: Int) throws

    /// The image in an image key as ``read(_:framing:)`` gives it, as far as it can be told without blocking: not where the
    /// answer would have to come from the disk, or takes so long to open that others would wait. Nothing is removed or
    /// counted. The one call that may be made on an event loop.
    func readCached(_ imageKey: ImageKey, framing: ReplyFraming) -> CachedRead

    /// Seals and writes an image. `isCurrent` is asked once at most, with the image key's commit lock held, right before the
    /// entry appears under its name; when it answers false nothing is left behind and the result is false. So it is,
    /// and nobody is asked, when a removal of the profile has overtaken the write.
    /// `committed` runs with that lock still held, right after the entry appeared. Others wait for it.
    func write(_ imageKey: ImageKey, _ image: Image, isCurrent: () -> Bool, committed: () -> Void) throws -> Bool

    /// Evicts images as far as the quotas are exceeded: after each write. May take long.
    /// - Parameter image key: of the image that was written, which goes last; nil for a rendition, which goes before other
    ///   renditions' sources do.
    func makeRoom(keeping imageKey: ImageKey?)

    /// Removes every size of the profiles named. `fence` runs with the commit lock of each profile held, before its
    /// entries go, so that no write that began earlier can appear after them; `removed` with that lock still held, when
    /// they are gone. Throws when an entry could not be removed.
    func remove(_ profiles: [OpaqueID], fence: (OpaqueID) -> Void, removed: (OpaqueID) -> Void) throws -> Usage

    /// Removes the image in one image key, if there is one and `isCurrent`, asked with the image key's commit lock held, agrees.
    func drop(_ imageKey: ImageKey, isCurrent: () -> Bool) throws

    /// What is held; nil while it is not yet counted after a start, and once it is discarded.
    var usage: Usage? { get }

    /// Refuses new work, waits until what has begun has ended, then wipes the keys. Idempotent.
    /// After it every read and write throws ``StoreError/closed``.
    func close()

    /// Gives the closed generation's directory to the trash, which empties itself in the background.
    /// Call it after the commit that ended the generation; a failure is left to the sweep.
    func discard()
}

/// The result of a disk lookup that does not block.
public enum CachedRead: Sendable {
    case image(Image)
    /// There is no image of the profile, in no image key, as of some moment within the call.
    case nothing
    /// To be found out by whoever may wait.
    case unknown
}

/// A count of images and of the bytes that they take: on disk whole blocks, inodes, and the directories they lie in.
public struct Usage: Sendable, Equatable {
    public var images: Int
    public var bytes: Int

    public init(images: Int = 0, bytes: Int = 0) {
        self.images = images
        self.bytes = bytes
    }

    public static func + (left: Usage, right: Usage) -> Usage {
        Usage(images: left.images + right.images, bytes: left.bytes + right.bytes)
    }
}

/// Why the store could not do something.
public enum StoreError: Error, Sendable, Equatable {
    /// The generation was closed by a purge or a log-out.
    case closed
    /// No room: the file system is full, out of inodes, or the image alone is over the user's quota.
    case noSpace(String)
    /// Anything else the system answered: what was attempted and the error's name.
    case failed(String)
}

extension StoreError: CustomStringConvertible {
    public var description: String { CacheFailure(self).description }
}
