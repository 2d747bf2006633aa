import NIOConcurrencyHelpers
import NIOCore

/// Caches images in the program's memory until their user logs out.
///
/// A hit costs no request to the daemon. Events of the daemon remove images at logout, purge and update. While the
/// subscription is not active, all requests go to the daemon and nothing is stored. A reply that was requested before
/// an event is not stored after it; after a logout or purge it is not returned either.
///
/// Limitation: if another program logs a user out, this cache serves images until its event loop has read the event.
/// The daemon writes the event before it sends the receipt. A logout through the same ``ThumbcacheClient`` takes effect
/// before it returns.
///
/// If the first GET has to download an image, the second one stores it, since a download causes an update event.
public final class ThumbcacheImages: Sendable {
    /// Attempts if a logout or purge happens during the request.
    private static let attempts = 3

    private let client: ThumbcacheClient
    private let now: @Sendable () -> Duration
    private let table: NIOLockedValueBox<ImageTable>
    private let isRunning = NIOLockedValueBox(false)

    /// - Parameter byteLimit: maximum memory in bytes, including about 1 KiB per image. Images larger than a quarter of
    ///   it are not stored.
    public convenience init(_ client: ThumbcacheClient, byteLimit: Int = 32 << 20) {
        let start = ContinuousClock.now
        self.init(client, byteLimit: byteLimit) { start.duration(to: .now) }
    }

    init(_ client: ThumbcacheClient, byteLimit: Int, now: @escaping @Sendable () -> Duration) {
        self.client = client
        self.now = now
        table = NIOLockedValueBox(ImageTable(limit: max(0, byteLimit)))
    }

    /// Subscribes to events until the task is cancelled or the client stops. Images are served from memory only while
    /// the subscription is active. A second call returns immediately.
    public func run() async {
        let isFirst = isRunning.withLockedValue { isRunning in
            defer { isRunning = true }
            return !isRunning
        }
        guard isFirst else { return }
        let table = table
        let key = ObjectIdentifier(self)
        client.observe(key) { change in table.withLockedValue { $0.apply(change) } }
        let subscription = Subscription(client, users: []) { event in table.withLockedValue { $0.apply(event) } }
        while let subscribed = await subscription.connection() {
            // Fails if the task is cancelled.
            if case .failure = await subscribed.ended.wait() {
                subscribed.connection.close()
                break
            }
        }
        // Before the observer is removed, so that no change of this client is missed while images may be served.
        table.withLockedValue { $0.apply(ThumbcacheEvent.gap) }
        client.observe(key, nil)
        isRunning.withLockedValue { $0 = false }
    }

    /// Returns an image from memory or else from the daemon, which may download it. nil if there is none.
    ///
    /// The ``ThumbcacheImage/status`` of an image from memory is the one that the daemon sent with it.
    ///
    /// - Parameters:
    ///   - size: in pixels, 1 to 4096.
    ///   - wait: how long the daemon may wait for a download. Default: the origin's timeout.
    /// - Throws: ``ThumbcacheError``; ``ServerErrorCode/cancelled`` if the user is logged out or purged repeatedly
    ///     during the request.
    public func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, size: ImageSize? = nil, wait: Duration? = nil
    ) async throws(ThumbcacheError) -> ThumbcacheImage? {
        let key = ImageTable.Key(user: user, profile: profile, size: size)
        let now = now()
        if let image = table.withLockedValue({ $0.image(key, now: now) }) { return image }
        for _ in 0..<Self.attempts {
            let (image, verdict) = try await read(key, wait)
            if verdict != .gone { return image }
        }
        throw .server(.cancelled, message: "the user was logged out or purged while the request waited")
    }

    private func read(
        _ key: ImageTable.Key, _ wait: Duration?
    ) async throws(ThumbcacheError) -> (ThumbcacheImage?, ImageTable.Verdict) {
        let read = table.withLockedValue { $0.begin(key) }
        // The time before the request, so that transmission does not extend the image's lifetime.
        let now = now()
        do throws(ThumbcacheError) {
            let image = try await client.get(key.user, key.profile, size: key.size, wait: wait)
            return (image, table.withLockedValue { $0.end(read, with: image, now: now) })
        } catch {
            _ = table.withLockedValue { $0.end(read, with: nil, now: now) }
            // The daemon processed the purge or logout before this program received its event.
            if case .server(.cancelled, _) = error { return (nil, .gone) }
            throw error
        }
    }

    /// The memory in use, in bytes.
    public var bytes: Int { table.withLockedValue { $0.bytes } }

    /// The number of images in memory.
    public var count: Int { table.withLockedValue { $0.count } }

    func holds(_ user: ThumbcacheID) -> Bool { table.withLockedValue { $0.holds(user) } }
}
