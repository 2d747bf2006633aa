import Foundation
import NIOConcurrencyHelpers

/// Runs each body on its own thread and waits for all. Throws the first error.
func atOnce(_ bodies: [@Sendable () throws -> Void]) throws {
    let failures = NIOLockedValueBox<[any Error]>([])
    let group = DispatchGroup()
    for body in bodies {
        group.enter()
        Thread.detachNewThread {
            do { try body() } catch { failures.withLockedValue { $0.append(error) } }
            group.leave()
        }
    }
    group.wait()
    if let first = failures.withLockedValue({ $0.first }) { throw first }
}
