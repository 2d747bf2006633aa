import Foundation

/// A value behind a lock, with a condition variable to wait for changes.
///
/// Unchecked: the compiler cannot see that `value` is accessed only under the lock.
final class Watched<Value>: @unchecked Sendable {
    private let condition = NSCondition()
    private var value: Value

    init(_ value: Value) { self.value = value }

    @discardableResult
    func change<Result>(_ body: (inout Value) -> Result) -> Result {
        condition.lock()
        defer {
            condition.broadcast()
            condition.unlock()
        }
        return body(&value)
    }

    var current: Value { change { $0 } }

    /// Waits without a timeout, then changes the value under the same lock.
    func wait<Result>(until isReached: (Value) -> Bool, then body: (inout Value) -> Result) -> Result {
        condition.lock()
        defer { condition.unlock() }
        while !isReached(value) { condition.wait() }
        return body(&value)
    }

    /// Returns whether the condition held within `seconds`.
    func wait(_ seconds: Double, until isReached: (Value) -> Bool) -> Bool {
        let deadline = Date(timeIntervalSinceNow: seconds)
        condition.lock()
        defer { condition.unlock() }
        while !isReached(value) {
            if !condition.wait(until: deadline) { return isReached(value) }
        }
        return true
    }
}
