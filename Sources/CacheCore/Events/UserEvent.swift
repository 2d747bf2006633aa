/// A change of a user's cache, for subscribers that keep copies of its images.
public struct UserEvent: Sendable, Equatable {
    public enum Kind: Sendable, Equatable {
        /// The user's first login has opened the cache.
        case login
        /// The last logout has closed the cache.
        case logout
        /// The images of one profile were removed; nil for all of the user's.
        case purge(OpaqueID?)
        /// A profile's image changed in one of its sizes: PUT, downloaded, or missing at the origin.
        case update(OpaqueID)
    }

    public let owner: Owner
    public let kind: Kind
    /// The epoch of the cache for an update, the new epoch for the others.
    public let epoch: UInt64

    public init(owner: Owner, kind: Kind, epoch: UInt64) {
        (self.owner, self.kind, self.epoch) = (owner, kind, epoch)
    }

    /// Whether the receipt is sent only after subscribers were called.
    public var isInvalidating: Bool {
        switch kind {
        case .logout, .purge: true
        case .login, .update: false
        }
    }
}

/// A receiver of events: in the daemon, the inbox shared by all subscribers of a uid on one event loop.
public protocol EventSubscriber: AnyObject, Sendable {
    var loop: any SubscriberLoop { get }

    /// Queues an event. Called on any thread; must not block.
    /// - Returns: whether to call ``handleEvents(for:)``.
    func enqueue(_ event: UserEvent) -> Bool

    /// Handles the queued events: at once up to an invalidation, whose receipt is sent afterwards; others possibly later.
    /// Called on the loop.
    /// - Parameter event: the event that was queued, possibly not the last one.
    func handleEvents(for event: UserEvent)
}

/// The thread on which subscribers handle events.
public protocol SubscriberLoop: AnyObject, Sendable {
    /// Runs `task` after earlier tasks. Called on any thread; must not block.
    func execute(_ task: @escaping @Sendable () -> Void)
}
