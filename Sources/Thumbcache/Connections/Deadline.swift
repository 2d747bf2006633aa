import NIOCore

/// Runs the body, and cancels it and throws `timeout` after the limit. Returns only when the body has ended; a result
/// that it returns in spite of the cancellation is not lost.
@_spi(Wire) public func within<Success: Sendable>(
    _ limit: Duration?, _ body: @escaping @Sendable () async throws(ThumbcacheError) -> Success
) async throws(ThumbcacheError) -> Success {
    guard let limit else { return try await body() }
    let outcome = await withTaskGroup(of: Result<Success, ThumbcacheError>?.self) { group in
        group.addTask {
            do throws(ThumbcacheError) {
                return .success(try await body())
            } catch {
                return .failure(error)
            }
        }
        group.addTask {
            do {
                try await Task.sleep(for: limit)
                return .failure(.timeout)
            } catch {
                // Cancelled because the body has ended or the whole task was cancelled.
                return nil
            }
        }
        var first: Result<Success, ThumbcacheError>?
        while let outcome = await group.next() {
            if case .success? = outcome { first = outcome }
            first = first ?? outcome
            group.cancelAll()
        }
        return first ?? .failure(.cancelled)
    }
    return try outcome.get()
}

extension TimeAmount {
    /// Durations over 292 years are clamped.
    @_spi(Wire) public init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        let (whole, isOver) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, isOverToo) = whole.addingReportingOverflow(attoseconds / 1_000_000_000)
        self = .nanoseconds(isOver || isOverToo ? .max : sum)
    }
}
