/// How long a host that fails is not asked: exponential backoff with full jitter.
///
/// The wait after the n-th attempt that failed is drawn evenly from nothing to `base` × 2^(n−1), or to `most` where that is less. All of it
/// is drawn, and not a part added to a fixed wait, so that many who saw one failure do not come back as one wave. (Marc Brooker,
/// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.)
///
/// A draw below a tenth of the ceiling is a tenth of it: so there is a number of requests that a host which stays broken gets at the very most,
/// however the draws fall, and it grows with the logarithm of the time until `most` is reached.
struct Backoff: Equatable, Sendable {
    /// Evenly distributed over a range.
    typealias Draw = (ClosedRange<Int64>) -> Int64

    /// Milliseconds.
    let base: Int64
    let most: Int64

    /// - Parameters:
    ///   - base: milliseconds; taken for 1 where it is less.
    ///   - most: milliseconds; taken for `base` where it is less.
    init(base: Int64, most: Int64) {
        self.base = max(1, base)
        self.most = max(self.base, most)
    }

    /// The longest wait after so many attempts that failed, in milliseconds.
    func ceiling(attempt: Int) -> Int64 {
        let doublings = max(0, attempt - 1)
        // Beyond 62 doublings of a millisecond there is nothing that an Int64 counts.
        guard doublings < 63, base <= most >> doublings else { return most }
        return base << doublings
    }

    /// The wait after so many attempts that failed, in milliseconds; at least 1.
    func wait(attempt: Int, draw: Draw) -> Int64 {
        let ceiling = ceiling(attempt: attempt)
        return max(1, ceiling / 10, min(ceiling, draw(0...ceiling)))
    }
}
