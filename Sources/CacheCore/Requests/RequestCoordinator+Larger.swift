// What stands in for an image of a size that nobody has: the next larger one of the profile that is held, else the
// operator's picture.

extension RequestCoordinator {
    /// Answers who asked for what there is none of: with null, or with a larger image where one will do and there is
    /// one. Nobody but the origin can say that there is none: so this comes after it was asked, if there is an origin.
    mutating func answerNone(_ waiter: Waiter, _ route: Route, _ now: Int64) -> [Effect] {
        guard mayTakeLarger(waiter.query, route, now) else { return [none(waiter, route, now)] }
        return wait(waiter, for: .larger).map { [.findLarger($0)] } ?? []
    }

    /// The answer to who asked for what nobody has.
    private func none(_ waiter: Waiter, _ route: Route, _ now: Int64) -> Effect {
        guard let picture = route.fallback, case .success(let target?) = target(of: waiter.query, route) else {
            return .answer(waiter, .success(nil))
        }
        // Good for as long as it is believed that nobody has one: then whoever keeps it asks again.
        var until = Int64.max
        for link in [DownloadTarget](target) {
            until = min(until, negativeCache.missingUntil(waiter.query.imageKey, url: link.url, at: now) ?? now)
        }
        var record = picture.record
        record.freshness = Freshness(storedAt: now, lifetime: until - now)
        let served = ServedImage(Image(record: record, bytes: picture.bytes), from: .fallback, at: now)
        return .answer(waiter, .success(served))
    }

    private func mayTakeLarger(_ query: ImageQuery, _ route: Route, _ now: Int64) -> Bool {
        guard query.largerWillDo else { return false }
        guard case .success(let target?) = route.target else { return true }
        return !target.contains { negativeCache.leavesNoneLarger(query.imageKey, url: $0.url, at: now) }
    }

    /// The image keys whose images may stand in for one that is missing, the best first: by size, and the one of no size
    /// last, of which nobody has said how large it is.
    /// - Parameter image keys: of the profile in which there are images on disk.
    func largerImageKeys(than imageKey: ImageKey, onDisk imageKeys: [ImageKey]) -> [ImageKey] {
        let onTheirWay = activity.lazy.filter { $0.key.profile == imageKey.profile && $0.value.storing != nil }.map(
            \.key)
        let larger = Set(imageKeys + onTheirWay).filter {
            $0.style == .plain && ($0.size > imageKey.size || $0.size == 0)
        }
        return larger.sorted { ($0.size == 0 ? .max : $0.size) < ($1.size == 0 ? .max : $1.size) }
    }

    /// Whether an image found in another image key may stand in: it is what that image key holds, and fresh. Not one
    /// that was made here, whose own source may be gone.
    func mayStandIn(_ image: Image, of imageKey: ImageKey, now: Int64) -> Bool {
        image.record.rendered == nil && image.record.freshness.isFresh(at: now) && suits(image)
            && activity[imageKey]?.dropping == nil && !negativeCache.leavesEmpty(imageKey, at: now)
    }

    /// The look for a larger image has ended. Nothing follows when it is no longer the one that counts.
    /// - Parameters:
    ///   - found: with the image key that it was found in.
    ///   - isConclusive: whether all was looked at, and no image of the profile has come since: then there is none.
    mutating func largerEnded(
        _ id: FlightID, found: (image: ServedImage, imageKey: ImageKey)?, isConclusive: Bool, route: Route, now: Int64
    ) -> [Effect] {
        guard let flight = finish(id) else { return [] }
        let served = found.flatMap { mayStandIn($0.image.image, of: $0.imageKey, now: now) ? $0.image : nil }
        if found == nil && isConclusive { negativeCache.noneLarger(than: id.imageKey) }
        tidy(id.imageKey)
        return flight.waiters.map { waiter in
            served.map { .answer(waiter, .success($0)) } ?? none(waiter, route, now)
        }
    }
}
