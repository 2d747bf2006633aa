import NIOConcurrencyHelpers
import NIOCore

/// Images in the memory of this program, which go when their user logs out.
///
/// A hit costs no call to the daemon. The daemon's events keep the rest right: a log-out, a purge and an update drop
/// what they are about. While the subscription is not up nothing is served from memory and nothing is kept (it fails
/// closed); every request then goes to the daemon. A reply that was asked for before an event is not kept behind it,
/// and where the event was a log-out or a purge it is not handed out either.
///
/// What it cannot do: an event takes a moment to arrive. When somebody else logs a user out, this program serves from
/// memory until its event loop has read the event, which the daemon writes before it sends the receipt. What is logged
/// out through the same ``ThumbcacheClient`` is gone when that returns.
///
/// An image is kept from the second GET on where the first had to download it: the download is an update itself.
public final class ThumbcacheImages: Sendable {
    /// Asked anew so many times because of log-outs and purges meanwhile.
    private static let attempts = 3

    private let client: ThumbcacheClient
    private let now: @Sendable () -> Duration
    private let table: NIOLockedValueBox<ImageTable>
    private let isRunning = NIOLockedValueBox(false)

    /// - Parameter byteLimit: bytes of memory, some 1 KiB for each image included. One that is larger than a quarter is
    ///   not kept.
    public convenience init(_ client: ThumbcacheClient, byteLimit: Int = 32 << 20) {
        let start = ContinuousClock.now
        self.init(client, byteLimit: byteLimit) { start.duration(to: .now) }
    }

    init(_ client: ThumbcacheClient, byteLimit: Int, now: @escaping @Sendable () -> Duration) {
        self.client = client
        self.now = now
        table = NIOLockedValueBox(ImageTable(limit: max(0, byteLimit)))
    }

    /// Subscribes until the task is cancelled or the client stops. Before, behind and whenever the subscription is not
    /// up, nothing is served from memory. A second call while it runs returns at once.
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
        while let connection = await subscription.connection() {
            let closed = OneShot<Void>()
            connection.whenClosed.whenComplete { _ in closed.resolve(.success(())) }
            if case .failure = await closed.wait() {
                connection.close()
                break
            }
        }
        // First: what goes through the client meanwhile is still heard of while something may be served.
        table.withLockedValue { $0.apply(ThumbcacheEvent.gap) }
        client.observe(key, nil)
        isRunning.withLockedValue { $0 = false }
    }

    /// An image: from memory, else from the daemon, which downloads it if it must. nil where there is none.
    ///
    /// Of an image from memory ``ThumbcacheImage/status`` is what it was when the daemon sent it.
    ///
    /// - Parameters:
    ///   - size: pixels, 1 to 4096.
    ///   - wait: how long the daemon may wait for a download. Default: the origin's timeout.
    public func get(
        _ user: ThumbcacheID, _ profile: ThumbcacheID, size: PictureSize? = nil, wait: Duration? = nil
    ) async throws(ThumbcacheError) -> ThumbcacheImage? {
        let key = ImageTable.Key(user: user, profile: profile, size: size)
        let now = now()
        if let image = table.withLockedValue({ $0.image(key, now: now) }) { return image }
        for _ in 0..<Self.attempts {
            let (image, verdict) = try await read(key, wait)
            if verdict != .gone { return image }
        }
        throw .server(.cancelled, message: "the user was logged out or purged while this request waited")
    }

    private func read(
        _ key: ImageTable.Key, _ wait: Duration?
    ) async throws(ThumbcacheError) -> (ThumbcacheImage?, ImageTable.Verdict) {
        let read = table.withLockedValue { $0.begin(key) }
        // The time before the request: an image is not kept longer for having been long on its way.
        let now = now()
        do throws(ThumbcacheError) {
            let image = try await client.get(key.user, key.profile, size: key.size, wait: wait)
            return (image, table.withLockedValue { $0.end(read, with: image, now: now) })
        } catch {
            _ = table.withLockedValue { $0.end(read, with: nil, now: now) }
            // The daemon has seen the purge or log-out before this program's event.
            if case .server(.cancelled, _) = error { return (nil, .gone) }
            throw error
        }
    }

    /// Bytes that are held now.
    public var bytes: Int { table.withLockedValue { $0.bytes } }

    /// Images that are held now.
    public var count: Int { table.withLockedValue { $0.count } }

    /// Whether something of a user is held.
    func holds(_ user: ThumbcacheID) -> Bool { table.withLockedValue { $0.holds(user) } }
}
