import NIOCore

/// Images by user, profile and size, bounded by bytes. Eviction removes the oldest image that was not read since its
/// last turn (second chance, CLOCK).
struct ImageStore {
    /// Estimated memory of an image in addition to its bytes.
    static let overhead = 1_024

    private struct Entry {
        let image: ThumbcacheImage
        /// The time at which the image is stale; nil for never.
        let end: Duration?
        let serial: UInt64
        var wasRead = false

        var cost: Int { image.bytes.readableBytes + ImageStore.overhead }
    }

    private struct Place {
        let key: ImageTable.Key
        let serial: UInt64
    }

    private let limit: Int
    private var entries: [ThumbcacheID: [ThumbcacheID: [ImageSize?: Entry]]] = [:]
    /// Entries in order of insertion. Removed entries are skipped, and swept if there are too many.
    private var queue = CircularBuffer<Place>()
    private var lastSerial: UInt64 = 0
    private(set) var bytes = 0
    private(set) var count = 0

    init(limit: Int) { self.limit = limit }

    func holds(_ user: ThumbcacheID) -> Bool { entries[user] != nil }

    mutating func image(_ key: ImageTable.Key, now: Duration) -> ThumbcacheImage? {
        guard let entry = self[key] else { return nil }
        if let end = entry.end, end <= now {
            remove(key)
            return nil
        }
        entries[key.user]?[key.profile]?[key.size]?.wasRead = true
        return entry.image
    }

    /// Stores a fresh image of at most a quarter of the limit; ignores others.
    mutating func insert(_ image: ThumbcacheImage, _ key: ImageTable.Key, now: Duration) {
        remove(key)
        guard image.status.state == .fresh, image.bytes.readableBytes <= limit / 4 else { return }
        if let left = image.status.timeToLive, left <= .zero { return }
        // Copied, since the reply's storage may be much larger than the image and would not be counted.
        let own = ThumbcacheImage(bytes: ByteBuffer(bytes: image.bytes.readableBytesView), status: image.status)
        lastSerial += 1
        let entry = Entry(image: own, end: image.status.timeToLive.map { now + $0 }, serial: lastSerial)
        entries[key.user, default: [:]][key.profile, default: [:]][key.size] = entry
        queue.append(Place(key: key, serial: lastSerial))
        bytes += entry.cost
        count += 1
        evict()
        sweep()
    }

    mutating func removeAll() {
        entries = [:]
        queue = []
        (bytes, count) = (0, 0)
    }

    mutating func remove(_ user: ThumbcacheID) {
        for entries in (entries.removeValue(forKey: user) ?? [:]).values { forget(entries) }
        // The queue must not keep the names of profiles either.
        queue.removeAll { $0.key.user == user }
    }

    mutating func remove(_ user: ThumbcacheID, _ profile: ThumbcacheID) {
        if let removed = entries[user]?.removeValue(forKey: profile) { forget(removed) }
        if entries[user]?.isEmpty == true { entries[user] = nil }
    }

    private mutating func remove(_ key: ImageTable.Key) {
        if let removed = entries[key.user]?[key.profile]?.removeValue(forKey: key.size) {
            forget([key.size: removed])
        }
        if entries[key.user]?[key.profile]?.isEmpty == true { remove(key.user, key.profile) }
    }

    private mutating func forget(_ removed: [ImageSize?: Entry]) {
        count -= removed.count
        bytes -= removed.values.reduce(0) { $0 + $1.cost }
    }

    private subscript(key: ImageTable.Key) -> Entry? { entries[key.user]?[key.profile]?[key.size] }

    private mutating func evict() {
        while bytes > limit, let place = queue.popFirst() {
            guard let entry = self[place.key], entry.serial == place.serial else { continue }
            if entry.wasRead {
                entries[place.key.user]?[place.key.profile]?[place.key.size]?.wasRead = false
                queue.append(place)
            } else {
                remove(place.key)
            }
        }
    }

    private mutating func sweep() {
        guard queue.count > 2 * count + 64 else { return }
        let entries = entries
        queue.removeAll { entries[$0.key.user]?[$0.key.profile]?[$0.key.size]?.serial != $0.serial }
    }
}
