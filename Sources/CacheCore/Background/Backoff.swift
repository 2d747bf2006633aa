/// Exponential backoff in any unit of time: `base` after the first failure, doubled after each further one, up to
/// `most`.
public struct Backoff: Equatable, Sendable {
    /// Draws a uniformly distributed number from a range.
    public typealias Draw = (ClosedRange<Int64>) -> Int64

    public let base: Int64
    public let most: Int64

    public init(base: Int64, most: Int64) {
        self.base = max(1, base)
        self.most = max(self.base, most)
    }

    /// The longest wait after `attempt` failures. A single client, which needs no jitter, waits exactly that long.
    public func ceiling(attempt: Int) -> Int64 {
        let doublings = max(0, attempt - 1)
        // 63 doublings exceed an Int64.
        guard doublings < 63, base <= most >> doublings else { return most }
        return base << doublings
    }

    /// The wait after `attempt` failures of one client among many: drawn from the whole range from 0 to the ceiling, so
    /// that clients that saw the same failure do not retry together (Marc Brooker, "Exponential Backoff And Jitter",
    /// AWS Architecture Blog, 2015). At least a tenth of the ceiling, to bound the requests to a broken host.
    public func wait(attempt: Int, draw: Draw) -> Int64 {
        let ceiling = ceiling(attempt: attempt)
        return max(1, ceiling / 10, min(ceiling, draw(0...ceiling)))
    }
}
