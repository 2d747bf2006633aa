import NIOCore

/// Images by user, profile and size, bounded by bytes. Which goes first is decided as by a second chance (CLOCK): the
/// oldest that was not asked for since it was last looked at.
struct ImageStore {
    /// What an image costs on top of its bytes: keys, status, places in the tables. Measured roughly, rounded up.
    static let overhead = 1_024

    private struct Entry {
        let image: ThumbcacheImage
        /// When it is stale; nil for never.
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
    private var entries: [ThumbcacheID: [ThumbcacheID: [PictureSize?: Entry]]] = [:]
    /// In the order in which they came. What was removed since is passed over, and swept when it is too much.
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

    /// What is stale, or larger than a quarter of the limit, is not kept.
    mutating func insert(_ image: ThumbcacheImage, _ key: ImageTable.Key, now: Duration) {
        remove(key)
        guard image.status.state == .fresh, image.bytes.readableBytes <= limit / 4 else { return }
        if let left = image.status.timeToLive, left <= .zero { return }
        // Storage of its own: that of the reply may be many times as large, and would not count.
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
        // Nor whose pictures they were.
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

    private mutating func forget(_ removed: [PictureSize?: Entry]) {
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
