/// The image keys that wait for a source, by the source's image key, and the last change of each source.
struct RenditionsInProgress: Sendable {
    private struct Source: Sendable {
        var imageKeys: Set<ImageKey> = []
        var last: Change?
    }

    /// An image that replaced the one of a source's image key, or its removal.
    private struct Change: Sendable {
        let number: UInt64
        let digest: ImageDigest?
        let provenance: Provenance?
        /// Whether the image key holds it: an origin can forbid storing.
        let isKept: Bool
    }

    private var sources: [ImageKey: Source] = [:]

    func imageKeys(of source: ImageKey) -> Set<ImageKey> { sources[source]?.imageKeys ?? [] }

    mutating func add(_ imageKey: ImageKey, of source: ImageKey) {
        sources[source, default: Source()].imageKeys.insert(imageKey)
    }

    mutating func remove(_ imageKey: ImageKey, of source: ImageKey) {
        sources[source]?.imageKeys.remove(imageKey)
        if sources[source]?.imageKeys.isEmpty == true { sources[source] = nil }
    }

    /// - Parameters:
    ///   - served: the new image; nil for a removal.
    ///   - number: larger than that of any earlier change.
    mutating func changed(_ source: ImageKey, to served: ServedImage?, number: UInt64) {
        let record = served?.image.record
        sources[source]?.last = Change(
            number: number, digest: record?.digest, provenance: record?.provenance, isKept: served?.isStorable ?? false)
    }

    /// Whether another image has replaced this one since change `requested`, so that it must not be served. For a
    /// request with URL, an image from elsewhere does not count: two requests with different URLs would otherwise
    /// download in turns forever.
    func isOutdated(_ digest: ImageDigest?, of source: ImageKey, from named: String?, since requested: UInt64) -> Bool {
        guard let last = sources[source]?.last, last.number > requested else { return false }
        if let named, last.provenance != .url(named) { return false }
        return last.digest != digest
    }

    /// Whether the image key holds that image, as far as known here: only then may its renditions be kept.
    func isHeld(_ digest: ImageDigest, in source: ImageKey) -> Bool {
        sources[source]?.last.map { $0.isKept && $0.digest == digest } ?? true
    }
}
