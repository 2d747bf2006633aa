import CacheCore
import LinuxSupport

/// Why the store cannot start or be inspected. The description states the problem, the place and the remedy.
public struct StoreStartError: Error, Sendable, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}

extension StoreError {
    init(_ attempt: String, _ error: any Error) {
        switch error {
        case let error as StoreError: self = error
        case let error as SystemError where error.isNoSpace: self = .noSpace("\(attempt): \(error)")
        default: self = .failed("\(attempt): \(error)")
        }
    }
}

/// Runs a public operation and converts its errors to ``StoreError``, except ``StoreStartError``.
func storeErrors<Result>(_ attempt: String, _ body: () throws -> Result) throws -> Result {
    do {
        return try body()
    } catch let error as StoreStartError {
        throw error
    } catch {
        throw StoreError(attempt, error)
    }
}

/// Runs all steps, even after one has failed, and keeps the first error.
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
