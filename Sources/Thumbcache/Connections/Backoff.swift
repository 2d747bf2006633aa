/// How long to wait before the next attempt to connect: longer each time, and never as long as somebody else who
/// lost the same daemon ("full jitter", at least a half so that a busy loop is impossible).
@_spi(Wire) public struct Backoff: Sendable {
    let first: Duration
    let longest: Duration

    @_spi(Wire) public init(first: Duration, longest: Duration) { (self.first, self.longest) = (first, longest) }

    /// - Parameters:
    ///   - failures: attempts that failed one after another, 1 or more.
    ///   - random: 0 to 1.
    @_spi(Wire) public func pause(after failures: Int, random: Double) -> Duration {
        // 2^20 is beyond every bound that makes sense, and does not overflow.
        let whole = min(longest, first * (1 << min(max(0, failures - 1), 20)))
        return whole / 2 + whole / 2 * min(max(random, 0), 1)
    }
}
