/// Exponential backoff with jitter between one half and the whole pause.
@_spi(Wire) public struct Backoff: Sendable {
    let first: Duration
    let longest: Duration

    @_spi(Wire) public init(first: Duration, longest: Duration) { (self.first, self.longest) = (first, longest) }

    /// - Parameters:
    ///   - failures: consecutive failed attempts, at least 1.
    ///   - random: a random number from 0 to 1.
    @_spi(Wire) public func pause(after failures: Int, random: Double) -> Duration {
        // 2^20 exceeds any sensible bound and does not overflow.
        let whole = min(longest, first * (1 << min(max(0, failures - 1), 20)))
        return whole / 2 + whole / 2 * min(max(random, 0), 1)
    }
}
