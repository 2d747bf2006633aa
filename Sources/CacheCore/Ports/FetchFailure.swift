import LinuxSupport

/// Why the fetcher delivered no image or no access token.
///
/// The fetcher sends it to the daemon as it is; ``CacheFailure`` has the only translation for clients.
public struct FetchFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// The raw values are those of the helper protocol.
    public enum Kind: UInt8, Sendable, CaseIterable {
        /// A transport error, or a response that is not valid for the request.
        case origin
        case timedOut
        /// The host rejected the token, the refresh token or the client's credentials.
        case unauthorized
        /// The origin refuses this image to this user.
        case forbidden
        /// The origin's `allow` entries or its rules for addresses exclude the URL or address.
        case denied
        case badImage
        case tooLarge
        /// Nothing was sent, because the circuit breaker of the host is open.
        case circuitOpen
        /// Nothing was sent, because a limit on concurrent requests or name lookups is reached.
        case busy
        case shuttingDown

        /// Whether it describes a complete response, which the next request would get as well.
        public var describesResponse: Bool {
            switch self {
            case .badImage, .tooLarge, .forbidden, .denied, .origin: true
            case .timedOut, .unauthorized, .circuitOpen, .busy, .shuttingDown: false
            }
        }
    }

    public let kind: Kind
    /// One sentence. It may contain hosts, HTTP statuses and error codes of RFC 6749, but no token, user or profile.
    public let reason: String
    /// A refresh token that the endpoint issued without a usable access token. It replaces the one that was sent.
    public let refreshToken: Secret?

    public init(_ kind: Kind, _ reason: String, refreshToken: Secret? = nil) {
        (self.kind, self.reason, self.refreshToken) = (kind, reason, refreshToken)
    }

    public var description: String { reason }

    public static func origin(_ reason: String, refreshToken: Secret? = nil) -> Self {
        Self(.origin, reason, refreshToken: refreshToken)
    }

    public static func timedOut(_ reason: String) -> Self { Self(.timedOut, reason) }
    public static func unauthorized(_ reason: String) -> Self { Self(.unauthorized, reason) }
    public static func forbidden(_ reason: String) -> Self { Self(.forbidden, reason) }
    public static func denied(_ reason: String) -> Self { Self(.denied, reason) }
    public static func badImage(_ reason: String) -> Self { Self(.badImage, reason) }
    public static func tooLarge(_ reason: String) -> Self { Self(.tooLarge, reason) }
    public static func circuitOpen(_ reason: String) -> Self { Self(.circuitOpen, reason) }
    public static func busy(_ reason: String) -> Self { Self(.busy, reason) }
    public static let shuttingDown = Self(.shuttingDown, "the fetcher is shutting down")
}
