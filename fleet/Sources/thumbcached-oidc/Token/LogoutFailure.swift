/// A rejected or failed logout. The description goes to the log and the client, so it contains no value of the token.
enum LogoutFailure: Error, Equatable, CustomStringConvertible {
    /// The request or its token is invalid; a retry cannot succeed.
    case invalid(String)
    /// A dependency is unavailable; a retry may succeed.
    case unavailable(String)

    var description: String {
        switch self {
        case .invalid(let reason), .unavailable(let reason): reason
        }
    }
}
