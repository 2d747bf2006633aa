/// Why a request to a user's cache failed.
///
/// Each error of a port is translated to it here: ``FetchFailure``, ``StoreError``, ``ImageRefusal``. The daemon's
/// connection translates it to an error reply. A reason states what failed and what would be valid; it contains no
/// user, profile or token.
public enum CacheFailure: Error, Sendable, Equatable {
    case notLoggedIn
    /// The user was purged or logged out while the request waited.
    case cancelled
    case invalid(String)
    case denied(String)
    case timedOut(String)
    case origin(String)
    /// The origin refuses this image to this user.
    case forbidden(String)
    case unauthorized(String)
    case badImage(String)
    case tooLarge(String)
    case busy(String)
    case noSpace(String)
    case inputOutput(String)
    case shuttingDown
}

extension CacheFailure: CustomStringConvertible {
    public var description: String {
        switch self {
        case .invalid(let reason), .denied(let reason), .timedOut(let reason), .origin(let reason),
            .forbidden(let reason), .unauthorized(let reason), .badImage(let reason), .tooLarge(let reason),
            .busy(let reason), .noSpace(let reason), .inputOutput(let reason):
            reason
        case .notLoggedIn: "the user is not logged in; send LOGIN first"
        case .cancelled: "the user was logged out or purged while the request waited"
        case .shuttingDown: "the daemon is stopping"
        }
    }
}

extension CacheFailure {
    /// Whether a stale image may be served instead (RFC 5861 section 4): not if the origin refuses the image.
    var allowsStale: Bool {
        switch self {
        case .timedOut, .origin, .badImage, .tooLarge, .busy: true
        case .notLoggedIn, .cancelled, .invalid, .denied, .unauthorized, .forbidden, .noSpace, .inputOutput,
            .shuttingDown:
            false
        }
    }

    public init(_ failure: FetchFailure) {
        switch failure.kind {
        case .origin, .circuitOpen: self = .origin(failure.reason)
        case .timedOut: self = .timedOut(failure.reason)
        case .unauthorized: self = .unauthorized(failure.reason)
        case .forbidden: self = .forbidden(failure.reason)
        case .denied: self = .denied(failure.reason)
        case .badImage: self = .badImage(failure.reason)
        case .tooLarge: self = .tooLarge(failure.reason)
        case .busy: self = .busy(failure.reason)
        case .shuttingDown: self = .shuttingDown
        }
    }

    init(_ error: any Error) {
        switch error {
        case let failure as CacheFailure: self = failure
        case let failure as FetchFailure: self.init(failure)
        case StoreError.closed: self = .cancelled
        case StoreError.noSpace(let reason): self = .noSpace(reason)
        case StoreError.failed(let reason): self = .inputOutput(reason)
        case let refusal as ImageRefusal: self = .badImage(refusal.reason)
        default: self = .inputOutput("\(error)")
        }
    }
}
