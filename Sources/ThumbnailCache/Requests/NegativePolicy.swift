/// How long the origin's word that there is no image (404, 410) is believed.
enum NegativePolicy {
    /// Until when, in seconds since 1970 by ``Timekeeping/now``: as long as the answer says that it is fresh, else for the
    /// origin's `negative-ttl`. Not after now where it may not be stored, or not be used unasked.
    static func believedUntil(_ headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) -> Int64 {
        var negative = origin
        negative.defaultTTL = origin.negativeTTL
        // A missing image has no date of its last change that anything could be guessed from.
        var fields = StoredFields(headers)
        fields.lastModified = nil
        let policy = StoragePolicy(fields, headers, origin: negative, at: responseTime)
        guard policy.mayStore, let left = policy.freshness.timeToLive(at: responseTime.now) else {
            return responseTime.now
        }
        return responseTime.now + max(0, left)
    }
}
