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
