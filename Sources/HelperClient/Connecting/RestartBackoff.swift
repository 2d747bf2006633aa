import CacheCore

/// Decides when a helper process may be started again: at once after the first failure, then with exponential backoff.
struct RestartBackoff: Equatable {
    /// After running this long, a helper has started successfully: its end counts as a first failure.
    static let settlingTime: Int64 = 10_000
    private static let delays = Backoff(base: 100, most: 30_000)

    /// Failures in a row.
    private var failures = 0
    /// The first start since the last failure.
    private var startedAt: Int64?
    private var retryAt = Int64.min

    mutating func started(at now: Int64) { startedAt = startedAt ?? now }

    mutating func failed(at now: Int64) {
        if let startedAt, now - startedAt >= Self.settlingTime { failures = 0 }
        startedAt = nil
        failures += 1
        retryAt = now + (failures == 1 ? 0 : Self.delays.ceiling(attempt: failures - 1))
    }

    /// Milliseconds until the next attempt; 0 if it may begin now.
    func delay(at now: Int64) -> Int64 { retryAt > now ? retryAt - now : 0 }
}
