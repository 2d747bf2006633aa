/// Something that has happened to a user's cache, told to whoever keeps copies of what it serves.
public struct UserEvent: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        /// A first log-in has opened the cache.
        case login
        /// The cache has ended.
        case logout
        /// The images of one profile were removed; nil: all of the user's.
        case purge(OpaqueID?)
        /// What is held of a profile has changed, in one of its sizes: another image was put or downloaded, or the
        /// origin said that there is none any more.
        case update(OpaqueID)
    }

    public let owner: Owner
    public let kind: Kind
    /// Of an update, that of the cache; of the others, the one that they began.
    public let epoch: UInt64

    public init(owner: Owner, kind: Kind, epoch: UInt64) {
        (self.owner, self.kind, self.epoch) = (owner, kind, epoch)
    }

    /// Whether the receipt waits until subscribers have been told.
    public var isInvalidating: Bool {
        switch kind {
        case .logout, .purge: true
        case .login, .update: false
        }
    }
}

/// Who is told of events.
public protocol EventSubscriber: AnyObject, Sendable {
    /// Called on any thread; must not block. An ending is told before its receipt is on its way.
    func tell(_ event: UserEvent)
}
