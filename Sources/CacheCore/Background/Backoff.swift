/// How long something that failed is not tried again: `base` after the first attempt that failed, twice as long after
/// each further one, up to `most`. In any unit of time.
public struct Backoff: Equatable, Sendable {
    /// Evenly distributed over a range.
    public typealias Draw = (ClosedRange<Int64>) -> Int64

    public let base: Int64
    public let most: Int64

    /// - Parameters:
    ///   - base: taken for 1 where it is less.
    ///   - most: taken for `base` where it is less.
    public init(base: Int64, most: Int64) {
        self.base = max(1, base)
        self.most = max(self.base, most)
    }

    /// The longest wait after so many attempts that failed; the wait itself where only one tries.
    public func ceiling(attempt: Int) -> Int64 {
        let doublings = max(0, attempt - 1)
        // Beyond 62 doublings there is nothing that an Int64 counts.
        guard doublings < 63, base <= most >> doublings else { return most }
        return base << doublings
    }

    /// The wait after so many attempts that failed where many try, at least 1: full jitter, drawn evenly from nothing
    /// to the ceiling. All of it is drawn, and not a part added to a fixed wait, so that many who saw one failure do
    /// not come back as one wave. (Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.)
    ///
    /// A draw below a tenth of the ceiling is a tenth of it: so there is a number of requests that a host which stays
    /// broken gets at the very most, however the draws fall, and it grows with the logarithm of the time until `most`
    /// is reached.
    public func wait(attempt: Int, draw: Draw) -> Int64 {
        let ceiling = ceiling(attempt: attempt)
        return max(1, ceiling / 10, min(ceiling, draw(0...ceiling)))
    }
}
