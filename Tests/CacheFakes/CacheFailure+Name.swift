import CacheCore

extension CacheFailure {
    /// The failure's case with its reason, for comparison in tests.
    public var name: String {
        switch self {
        case .notLoggedIn: "notLoggedIn"
        case .cancelled: "cancelled"
        case .shuttingDown: "shuttingDown"
        case .invalid(let reason): "invalid(\"\(reason)\")"
        case .denied(let reason): "denied(\"\(reason)\")"
        case .timedOut(let reason): "timedOut(\"\(reason)\")"
        case .origin(let reason): "origin(\"\(reason)\")"
        case .forbidden(let reason): "forbidden(\"\(reason)\")"
        case .unauthorized(let reason): "unauthorized(\"\(reason)\")"
        case .badImage(let reason): "badImage(\"\(reason)\")"
        case .tooLarge(let reason): "tooLarge(\"\(reason)\")"
        case .busy(let reason): "busy(\"\(reason)\")"
        case .noSpace(let reason): "noSpace(\"\(reason)\")"
        case .inputOutput(let reason): "inputOutput(\"\(reason)\")"
        }
    }
}
