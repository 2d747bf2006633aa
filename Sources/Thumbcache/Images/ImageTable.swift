import NIOCore

/// Images in memory, and the fence that keeps late replies out of it: a pure value.
///
/// Three things make an image that is served one that the daemon would serve, too:
/// - Nothing is served or kept unless the subscription is up: only then does an event tell of every change.
/// - An event drops what it is about at once.
/// - A read, which is a reply that somebody waits for, is noted before it is asked for. An event marks the reads that
///   it is about, and a marked reply is not kept: what the daemon sent may be older than the event. A reply that is not
///   marked was asked for behind every event that could be about it.
///
/// The notes are as many as tasks wait: no user and no profile is remembered for having had an event.
struct ImageTable {
    struct Key: Hashable {
        let user: ThumbcacheID
        let profile: ThumbcacheID
        let size: PictureSize?
    }

    /// What happened to the image during a read, the graver of several.
    enum Verdict: Int, Comparable {
        /// Nothing; it may be kept.
        case current
        /// The image may be another now, or nobody knows. The reply is as good as any, but is not kept.
        case changed
        /// It was logged out or purged. The reply is not to be shown any more.
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

    // MARK: Reading

    /// - Parameter now: of any clock that never goes back.
    mutating func image(_ key: Key, now: Duration) -> ThumbcacheImage? {
        isSubscribed ? store.image(key, now: now) : nil
    }

    /// To be called before the image is asked for, and followed by ``end(_:with:now:)`` whatever the answer.
    mutating func begin(_ key: Key) -> Read {
        lastRead += 1
        let read = Read(number: lastRead)
        reads[read] = (key, isSubscribed ? .current : .changed)
        return read
    }

    /// Keeps what was read, if it may be.
    mutating func end(_ read: Read, with image: ThumbcacheImage?, now: Duration) -> Verdict {
        guard let (key, verdict) = reads.removeValue(forKey: read) else { return .changed }
        if verdict == .current, let image { store.insert(image, key, now: now) }
        return verdict
    }

    // MARK: Events

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
        case .ofEverybody:
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
