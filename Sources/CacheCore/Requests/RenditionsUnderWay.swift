/// Which image keys wait for a picture of another image key, to be made from it, and what has become of that one meanwhile.
struct RenditionsUnderWay: Sendable {
    private struct Source: Sendable {
        var imageKeys: Set<ImageKey> = []
        var last: Change?
    }

    /// What has come into an image key: a picture, or nothing.
    private struct Change: Sendable {
        let number: UInt64
        let digest: ImageDigest?
        let provenance: Provenance?
        /// Whether the image key holds it: an origin can forbid that.
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
    ///   - served: what has come; nil for nothing.
    ///   - number: larger than that of any change before.
    mutating func changed(_ source: ImageKey, to served: ServedImage?, number: UInt64) {
        let record = served?.image.record
        sources[source]?.last = Change(
            number: number, digest: record?.digest, provenance: record?.provenance, isKept: served?.isKept ?? false)
    }

    /// Whether another picture has come into the image key since somebody asked for it, so that this one is not to be
    /// served. To who named a URL a picture from elsewhere says nothing: two that name two URLs would else have them
    /// downloaded in turns for ever.
    /// - Parameter asked: the number of the last change when it was asked for.
    func isOutdated(_ digest: ImageDigest?, of source: ImageKey, from named: String?, since asked: UInt64) -> Bool {
        guard let last = sources[source]?.last, last.number > asked else { return false }
        if let named, last.provenance != .url(named) { return false }
        return last.digest != digest
    }

    /// Whether it is what the image key holds, as far as is known here: then what was made of it may be kept.
    func isHeld(_ digest: ImageDigest, in source: ImageKey) -> Bool {
        sources[source]?.last.map { $0.isKept && $0.digest == digest } ?? true
    }
}
