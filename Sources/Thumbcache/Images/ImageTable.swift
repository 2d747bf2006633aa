import NIOCore

/// Images in memory, and the fence that keeps late replies out; a value type without effects.
///
/// Three rules ensure that it serves only images that the daemon would serve:
/// - Images are served and stored only while the subscription is active, because then every change causes an event.
/// - An event removes the affected images immediately.
/// - A read is registered before its request is sent. An event marks the affected reads, whose replies are not stored,
///   since the daemon may have sent them before the event.
///
/// Only waiting tasks are registered, so no user or profile is remembered because of an event.
struct ImageTable {
    struct Key: Hashable {
        let user: ThumbcacheID
        let profile: ThumbcacheID
        let size: ImageSize?
    }

    /// The effect of events on a read. The highest of several counts.
    enum Verdict: Int, Comparable {
        /// None; the reply may be stored.
        case current
        /// The image may have changed. The reply may be returned, but not stored.
        case changed
        /// The user was logged out or the image was purged. The reply must not be returned.
        case gone

        static func < (one: Verdict, other: Verdict) -> Bool { one.rawValue < other.rawValue }
    }

    struct Read: Hashable {
        fileprivate let number: UInt64
    }

    private var isSubscribed = false
    private var lastRead: UInt64 = 0
    private var reads: [Read: (key: Key, verdict: Verdict)] = [:]
    private var store: ImageStore

    init(limit: Int) { store = ImageStore(limit: limit) }

    var bytes: Int { store.bytes }
    var count: Int { store.count }

    func holds(_ user: ThumbcacheID) -> Bool { store.holds(user) }

    /// - Parameter now: the time of a monotonic clock.
    mutating func image(_ key: Key, now: Duration) -> ThumbcacheImage? {
        isSubscribed ? store.image(key, now: now) : nil
    }

    /// Registers a read before its request is sent. Must be followed by ``end(_:with:now:)``.
    mutating func begin(_ key: Key) -> Read {
        lastRead += 1
        let read = Read(number: lastRead)
        reads[read] = (key, isSubscribed ? .current : .changed)
        return read
    }

    /// Unregisters a read, and stores the image if no event affected it.
    mutating func end(_ read: Read, with image: ThumbcacheImage?, now: Duration) -> Verdict {
        guard let (key, verdict) = reads.removeValue(forKey: read) else { return .changed }
        if verdict == .current, let image { store.insert(image, key, now: now) }
        return verdict
    }

    mutating func apply(_ event: ThumbcacheEvent) {
        switch event {
        case .subscribed: isSubscribed = true
        case .gap:
            isSubscribed = false
            store.removeAll()
            mark(.changed) { _ in true }
        case .login: break
        case .logout(let user, _), .purge(let user, nil, _): apply(.of(user))
        case .purge(let user, let profile?, _): apply(.gone(user, profile: profile))
        case .update(let user, let profile, _): apply(.updated(user, profile: profile))
        }
    }

    mutating func apply(_ change: ImageChange) {
        switch change {
        case .all:
            store.removeAll()
            mark(.gone) { _ in true }
        case .of(let user):
            store.remove(user)
            mark(.gone) { $0.user == user }
        case .gone(let user, let profile):
            store.remove(user, profile)
            mark(.gone) { $0.user == user && $0.profile == profile }
        case .updated(let user, let profile):
            store.remove(user, profile)
            mark(.changed) { $0.user == user && $0.profile == profile }
        }
    }

    private mutating func mark(_ verdict: Verdict, _ isMeant: (Key) -> Bool) {
        for (read, noted) in reads where isMeant(noted.key) {
            reads[read] = (noted.key, max(verdict, noted.verdict))
        }
    }
}
