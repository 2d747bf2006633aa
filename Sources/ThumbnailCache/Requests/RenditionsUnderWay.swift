/// Which slots wait for a picture of another slot, to be made from it, and what has become of that one meanwhile.
struct RenditionsUnderWay: Sendable {
    private struct Source: Sendable {
        var slots: Set<Slot> = []
        var last: Change?
    }

    /// What has come into a slot: a picture, or nothing.
    private struct Change: Sendable {
        let number: UInt64
        let digest: ImageDigest?
        let provenance: Provenance?
        /// Whether the slot holds it: an origin can forbid that.
        let isKept: Bool
    }

    private var sources: [Slot: Source] = [:]

    func slots(of source: Slot) -> Set<Slot> { sources[source]?.slots ?? [] }

    mutating func add(_ slot: Slot, of source: Slot) { sources[source, default: Source()].slots.insert(slot) }

    mutating func remove(_ slot: Slot, of source: Slot) {
        sources[source]?.slots.remove(slot)
        if sources[source]?.slots.isEmpty == true { sources[source] = nil }
    }

    /// - Parameters:
    ///   - served: what has come; nil for nothing.
    ///   - number: larger than that of any change before.
    mutating func changed(_ source: Slot, to served: ServedImage?, number: UInt64) {
        let record = served?.image.record
        sources[source]?.last = Change(
            number: number, digest: record?.digest, provenance: record?.provenance, isKept: served?.isKept ?? false)
    }

    /// Whether another picture has come into the slot since somebody asked for it, so that this one is not to be
    /// served. To who named a URL a picture from elsewhere says nothing: two that name two URLs would else have them
    /// downloaded in turns for ever.
    /// - Parameter asked: the number of the last change when it was asked for.
    func isOutdated(_ digest: ImageDigest?, of source: Slot, from named: String?, since asked: UInt64) -> Bool {
        guard let last = sources[source]?.last, last.number > asked else { return false }
        if let named, last.provenance != .url(named) { return false }
        return last.digest != digest
    }

    /// Whether it is what the slot holds, as far as is known here: then what was made of it may be kept.
    func isHeld(_ digest: ImageDigest, in source: Slot) -> Bool {
        sources[source]?.last.map { $0.isKept && $0.digest == digest } ?? true
    }
}
