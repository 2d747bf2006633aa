import ThumbcacheProtocol
import ThumbnailCache

extension CommandError {
    /// How a failure of the cache reads on the wire.
    init(_ failure: CacheFailure) {
        switch failure {
        case .notLoggedIn: self.init(.noLogin, "this user is not logged in: LOGIN comes first")
        case .cancelled: self.init(.cancelled, "the user was logged out or purged while this request waited")
        case .invalid(let reason): self.init(.err, reason)
        case .denied(let reason): self.init(.denied, reason)
        case .timedOut(let reason): self.init(.timeout, reason)
        case .origin(let reason), .forbidden(let reason): self.init(.origin, reason)
        case .unauthorized(let reason): self.init(.unauthorized, reason)
        case .badImage(let reason): self.init(.badImage, reason)
        case .tooLarge(let reason): self.init(.tooLarge, reason)
        case .busy(let reason): self.init(.busy, reason)
        case .noSpace(let reason): self.init(.noSpace, reason)
        case .inputOutput(let reason): self.init(.ioErr, reason)
        case .shuttingDown: self = .stopping
        }
    }

    static let stopping = CommandError(.shuttingDown, "the daemon is stopping: connect again in a moment")

    /// An error thrown by what runs a command.
    init(_ error: any Error) {
        switch error {
        case let error as CommandError: self = error
        case let failure as CacheFailure: self.init(failure)
        default: self.init(.ioErr, "\(error)")
        }
    }
}
