import JWTKit
import Logging

/// A source of keys.
protocol KeyDownload: Sendable {
    /// Returns the bytes of a JWK set.
    func download() async throws(KeyFailure) -> [UInt8]
}

/// When keys are downloaded. Times are milliseconds of a monotonic clock.
struct KeyTimes: Equatable, Sendable {
    /// Minimum interval of downloads, which also limits lookups of unknown key ids.
    var pause: Int64 = 10_000
    /// Maximum age of keys; a withdrawn key is accepted for this long. While downloads fail, the known keys stay valid.
    var lifetime: Int64 = 3_600_000
}

/// Caches the provider's keys and refreshes them.
///
/// Runs one download at a time, with ``KeyTimes/pause`` between two. A failed download keeps the previous keys.
actor KeyStore {
    private let source: any KeyDownload
    private let algorithms: [SignatureAlgorithm]
    private let times: KeyTimes
    private let log: Logger
    private let now: @Sendable () -> Int64

    private var keys: KeySet?
    private var lastAnswer: Int64?
    private var lastAttempt: Int64?
    private var download: Task<Bool, Never>?

    init(
        _ source: any KeyDownload, algorithms: [SignatureAlgorithm], times: KeyTimes, log: Logger,
        now: @escaping @Sendable () -> Int64
    ) {
        (self.source, self.algorithms, self.times) = (source, algorithms, times)
        (self.log, self.now) = (log, now)
    }

    /// Returns the verifier for a token's signature.
    func verifier(id: String?, for algorithm: SignatureAlgorithm) async throws(LogoutFailure) -> any JWTAlgorithm {
        var isRefreshed = false
        if isOld { isRefreshed = await refresh() }
        if case .key(let key)? = keys?.choose(id: id, for: algorithm) { return key }
        if !isRefreshed { isRefreshed = await refresh() }
        switch keys?.choose(id: id, for: algorithm) {
        case .key(let key)?: return key
        case .unknown? where !isRefreshed:
            throw .unavailable("the logout token's kid matches no known key, and the keys could not be refreshed")
        case .unknown?: throw .invalid("the logout token's kid matches no key of the provider")
        case .unfit?:
            throw .invalid(
                id == nil
                    ? "the logout token has no kid, and not exactly one key matches"
                    : "the logout token's alg is not that of its key")
        case nil: throw .unavailable("the provider's keys are unavailable: no download has succeeded")
        }
    }

    private var isOld: Bool { lastAnswer.map { now() - $0 >= times.lifetime } ?? true }

    /// Downloads the keys, unless the pause is not over. Waits for a download in flight.
    /// - Returns: whether a download that began with this call succeeded.
    @discardableResult
    func refresh() async -> Bool {
        if let download {
            _ = await download.value
            return false
        }
        if let lastAttempt, now() - lastAttempt < times.pause { return false }
        lastAttempt = now()
        let download = Task { await update() }
        self.download = download
        return await download.value
    }

    private func update() async -> Bool {
        defer { download = nil }
        do throws(KeyFailure) {
            let set = try await KeySet(try await source.download(), algorithms: algorithms)
            (keys, lastAnswer) = (set, now())
            log.info("keys downloaded", metadata: ["keys": "\(set.keys.count)", "skipped": "\(set.skipped)"])
            return true
        } catch {
            log.warning(
                keys == nil
                    ? "key download failed; no keys are known" : "key download failed; keeping the previous keys",
                metadata: ["reason": "\(error)"])
            return false
        }
    }
}
