/// Why a log-out is not done. Says nothing of what stands in a token but the names of its members: it goes into the
/// log, and to whoever has sent the request.
enum LogoutFailure: Error, Equatable, CustomStringConvertible {
    /// The request or its token is wrong, and will be.
    case invalid(String)
    /// Something that is needed is away: the same request may succeed later.
    case unavailable(String)

    var description: String {
        switch self {
        case .invalid(let reason), .unavailable(let reason): reason
        }
    }
}
