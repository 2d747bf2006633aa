/// Why a request about a user's cache could not be answered. Sentences say what was wrong and what would be right;
/// they never name a user, a profile or a token.
public enum CacheFailure: Error, Sendable, Equatable {
    case notLoggedIn
    /// Purged or logged out while the request waited.
    case cancelled
    case invalid(String)
    case denied(String)
    case timedOut(String)
    case origin(String)
    /// The origin was asked and says that this user may not have the image.
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
        case .notLoggedIn: "the user is not logged in"
        case .cancelled: "the user was logged out or purged meanwhile"
        case .shuttingDown: "the daemon is stopping"
        }
    }
}

extension CacheFailure {
    /// Whether a stale image is better than this answer (RFC 5861 section 4): the origin could not be asked, or did not
    /// give what it should have. Not where it was asked and said that this user may not have it.
    var allowsStale: Bool {
        switch self {
        case .timedOut, .origin, .badImage, .tooLarge, .busy: true
        case .notLoggedIn, .cancelled, .invalid, .denied, .unauthorized, .forbidden, .noSpace, .inputOutput,
            .shuttingDown:
            false
        }
    }

    init(_ error: any Error) {
        switch error {
        case let failure as CacheFailure: self = failure
        case StoreError.closed: self = .cancelled
        case StoreError.noSpace(let reason): self = .noSpace(reason)
        case StoreError.failed(let reason): self = .inputOutput(reason)
        case let refusal as ImageRefusal: self = .badImage(refusal.reason)
        default: self = .inputOutput("\(error)")
        }
    }
}
