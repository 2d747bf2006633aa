// What the answers of an origin mean for the cache, and what it is asked for them.

extension UserCache {
    /// What makes a download conditional on an image that is held.
    func condition(for basis: Image, at target: DownloadTarget) -> DownloadCondition {
        let fields = basis.record.fields
        return DownloadCondition(
            url: basis.record.redirectedTo ?? target.url, etag: fields.etag,
            lastModified: fields.modifiedSince(now: services.time.now))
    }

    /// What an ended download means for the cache. Nil for a "not modified" that is about something else than what is held, and for
    /// what was said to tokens that are not the log-in's any more: then the origin is to be asked again.
    /// - Parameters:
    ///   - family: of the tokens that it showed.
    ///   - responseTime: when it ended, which is when its age began to count here.
    func judge(
        _ outcome: DownloadOutcome, of target: DownloadTarget, from origin: Origin, basis: Image?, _ family: UInt32,
        at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult? {
        if !outcome.isFailure, family != account.tokens.family { return nil }
        switch outcome {
        case .image(let downloaded):
            return image(downloaded, of: target, from: origin, family, at: responseTime)
        case .notModified(let headers):
            guard let basis else { return .failed(.origin("the origin said that nothing has changed, unasked")) }
            return confirmed(basis, headers, origin: origin, family, at: responseTime)
        case .missing(let headers):
            return .missing(
                until: NegativePolicy.believedUntil(headers, origin: origin, at: responseTime), family: family)
        case .failed(let failure):
            services.counters.count(.downloadFailures)
            return .failed(CacheFailure(failure))
        }
    }

    private func image(
        _ downloaded: DownloadedImage, of target: DownloadTarget, from origin: Origin, _ family: UInt32,
        at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult {
        let fields = StoredFields(downloaded.headers)
        let policy = StoragePolicy(fields, downloaded.headers, origin: origin, at: responseTime)
        let record = ImageRecord(
            shape: downloaded.shape, digest: services.store.digest(of: downloaded.bytes.image),
            provenance: .url(target.url), freshness: policy.freshness, fields: fields,
            redirectedTo: downloaded.redirectedTo, tokenFamily: policy.variesByToken ? family : nil)
        return .image(Image(record: record, bytes: downloaded.bytes), storable: policy.mayStore)
    }

    /// A 304 renews what is known of the image and keeps its bytes (RFC 9111 section 4.3.4).
    private func confirmed(
        _ basis: Image, _ headers: ResponseHeaders, origin: Origin, _ family: UInt32, at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult? {
        let answer = StoredFields(headers)
        guard basis.record.fields.areConfirmed(by: answer, now: responseTime.forDates) else { return nil }
        services.counters.count(.notModified)
        var record = basis.record
        record.fields = record.fields.updated(by: answer)
        let policy = StoragePolicy(record.fields, headers, origin: origin, at: responseTime)
        record.freshness = policy.freshness
        record.tokenFamily = policy.variesByToken ? family : nil
        return .confirmed(Image(record: record, bytes: basis.bytes), storable: policy.mayStore)
    }
}

extension DownloadOutcome {
    fileprivate var isFailure: Bool {
        if case .failed = self { true } else { false }
    }
}
