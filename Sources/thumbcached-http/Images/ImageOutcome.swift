import Thumbcache

/// The result of a request to the daemon.
enum ImageOutcome: Equatable, Sendable {
    case image(ThumbcacheImage)
    /// The browser has the image with this digest. The status is nil if it is not known.
    case unchanged(digest: String, ImageStatus?)
    /// There is no image, or the user is not logged in: a browser cannot tell which.
    case missing
    case failure(Failure)

    enum Failure: Sendable {
        /// A limit of the daemon or of this program is reached.
        case busy
        /// The daemon cannot be reached, stops, or cannot use its disk.
        case unavailable
        /// The origin did not respond in time.
        case timeout
        /// The origin failed.
        case origin
    }

    init(_ error: ThumbcacheError) {
        switch error {
        // CANCELLED: the user was logged out or purged during the request. It is not repeated, since it may belong to
        // the login that has ended.
        case .server(.noLogin, _), .server(.cancelled, _): self = .missing
        case .server(.busy, _): self = .failure(.busy)
        case .server(.timeout, _), .timeout: self = .failure(.timeout)
        case .server(.shuttingDown, _), .server(.ioError, _), .server(.noSpace, _): self = .failure(.unavailable)
        case .server: self = .failure(.origin)
        case .unreachable, .notThumbcached, .protocolViolation, .connectionLost, .cancelled, .notRunning,
            .invalidRequest:
            self = .failure(.unavailable)
        }
    }
}
