import LinuxSupport
import NIOCore

/// The persistent store of logins and images. Every call may block on the disk, so none may run on an event loop.
public protocol ImageStore: Sendable {
    /// The first epoch of this start, greater than all epochs of earlier starts. Below 2^53 - 2^32.
    var epochBase: UInt64 { get }

    /// The stored login of an owner with its generation store; nil if not logged in.
    func load(_ owner: Owner) throws -> (record: LoginRecord, generationStore: any GenerationStore)?

    /// The uids with logged-in users, and possibly some without. Costs one directory listing.
    func uids() throws -> [UInt32]

    /// The logged-in users of a uid. Costs one read for each user.
    func users(of uid: UInt32) throws -> [OpaqueID]

    /// The number of logged-in users of a uid. Costs one directory listing.
    func countUsers(of uid: UInt32) throws -> Int

    /// Makes the presence or absence of a uid's logins durable, which an earlier run may have left in the page cache.
    ///
    /// Call before a reply that confirms what was found on disk without a commit. Does nothing for a uid without a
    /// directory, whose keys were destroyed durably. After the first call for a uid, it costs a dictionary lookup.
    func makeDurable(_ uid: UInt32) throws

    /// Makes a login durable: first the sessions, then the key file, which is the commit point. The owner must not be
    /// logged in.
    func commitLogin(_ owner: Owner, _ login: LoginRecord) throws -> any GenerationStore

    /// Makes changed sessions, origin or tokens of a logged-in owner durable.
    func commitSessions(_ owner: Owner, _ login: LoginRecord) throws

    /// Replaces the owner's generation by a new one, durably, and returns its store. The images of the old generation
    /// are then unreadable. The old generation store must be closed.
    func commitPurge(_ owner: Owner) throws -> any GenerationStore

    /// Destroys the owner's keys and login durably. The generation store must be closed. Does nothing if not logged in.
    func commitLogout(_ owner: Owner) throws

    func digest(of image: ByteBuffer) -> ImageDigest
}

/// A login, stored encrypted across restarts.
public struct LoginRecord: Sendable, Equatable {
    /// Sessions that outlive their connection. Sessions with HOLD are not stored: connections do not survive a restart.
    public var sessions: Set<OpaqueID>
    /// The origin named at login; nil for the default one.
    public var origin: String?
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
    /// `isCurrent` is called at most once, with the key's commit lock held, right before the entry gets its name. It is
    /// not called if the profile was removed after the write began; the write is then not current either. `committed`
    /// is called with the same lock held, right after the entry got its name, and must be short.
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

/// A number of images and the bytes that they occupy; on disk including whole blocks, inodes and directories.
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

public enum StoreError: Error, Sendable, Equatable {
    /// The generation was closed by a purge or logout.
    case closed
    /// The file system is full or out of inodes, or the image alone exceeds the user's quota.
    case noSpace(String)
    /// Another system error: the operation and the error's name.
    case failed(String)
}

extension StoreError: CustomStringConvertible {
    public var description: String { CacheFailure(self).description }
}
