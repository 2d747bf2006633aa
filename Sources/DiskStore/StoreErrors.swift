import CacheCore
import LinuxSupport
import Logging

/// Why the store does not start, or cannot be inspected: a sentence that says what was wrong, where, and what would be
/// right.
public struct StoreStartError: Error, Sendable, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}

extension StoreError {
    /// - Parameter attempt: what the store was doing, such as `writing an image`.
    init(_ attempt: String, _ error: any Error) {
        switch error {
        case let error as StoreError: self = error
        case let error as SystemError where error.isNoSpace: self = .noSpace("\(attempt): \(error)")
        default: self = .failed("\(attempt): \(error)")
        }
    }
}

/// Runs a public operation: whatever the system says inside leaves it as a ``StoreError``. What stops a start says so
/// itself.
func storeErrors<Result>(_ attempt: String, _ body: () throws -> Result) throws -> Result {
    do {
        return try body()
    } catch let error as StoreStartError {
        throw error
    } catch {
        throw StoreError(attempt, error)
    }
}

/// The first of several failures: what comes behind one is done all the same.
struct FirstFailure {
    private var error: (any Error)?

    mutating func attempt(_ body: () throws -> Void) {
        do {
            try body()
        } catch {
            self.error = self.error ?? error
        }
    }

    func rethrow() throws { if let error { throw error } }
}

extension Logger {
    /// Does what nothing hangs on: that it failed is told, and that is all.
    package func attempt(
        _ orElse: Logger.Message, _ level: Logger.Level = .warning, _ metadata: Logger.Metadata = [:],
        _ body: () throws -> Void
    ) {
        do {
            try body()
        } catch {
            log(level: level, orElse, metadata: metadata.merging(["error": "\(error)"]) { $1 })
        }
    }
}
