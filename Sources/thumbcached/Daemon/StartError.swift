import ThumbnailCache

/// Why nobody is served: something that had to end before could not be ended.
enum StartError: Error, CustomStringConvertible {
    /// I4: what a log-out is owed to must not be served, and there is no telling whom to keep closed.
    case pendingLogouts(CacheFailure)
    case boot(String)

    var description: String {
        switch self {
        case .pendingLogouts(let failure):
            "a pending log-out could not be honoured, so nobody is served: \(failure)"
        case .boot(let reason): "what a boot is to end could not be ended, so nobody is served: \(reason)"
        }
    }
}
