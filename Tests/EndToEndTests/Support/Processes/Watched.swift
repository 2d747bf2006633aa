import Foundation

/// A value behind a lock, and threads that wait for it to become something.
///
/// Unchecked, because the compiler cannot see that `value` is touched under the condition's lock only.
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

    /// Waits as long as it takes, then takes something out of the value before anybody else sees it.
    func wait<Result>(until isReached: (Value) -> Bool, then body: (inout Value) -> Result) -> Result {
        condition.lock()
        defer { condition.unlock() }
        while !isReached(value) { condition.wait() }
        return body(&value)
    }

    /// Whether it was reached within `seconds`.
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
