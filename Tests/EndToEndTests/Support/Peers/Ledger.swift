/// What one user's only client knows about the user's cache: every reply it has, and the one command that was under way
/// when the daemon died.
struct Ledger: Sendable {
    /// What a cache holds. Two of them are possible after a kill: the command under way was done, or was not.
    struct Holding: Sendable, Equatable {
        var isLoggedIn = false
        /// By profile: the number of the image that was put (it must be there), or that was downloaded (it may be gone,
        /// for its reply does not wait for the disk).
        var put: [String: Int] = [:]
        var downloaded: [String: Int] = [:]
    }

    enum Command: Sendable {
        case login
        case logout
        case purge
        case purgeProfile(String)
        case put(String, Int)
        case get(String)

        func applied(to holding: Holding) -> Holding {
            var holding = holding
            switch self {
            case .login: holding.isLoggedIn = true
            case .logout: holding = Holding()
            case .purge: holding = Holding(isLoggedIn: holding.isLoggedIn)
            case .purgeProfile(let profile):
                holding.put[profile] = nil
                holding.downloaded[profile] = nil
            case .put(let profile, let number):
                if holding.isLoggedIn {
                    holding.put[profile] = number
                    holding.downloaded[profile] = nil
                }
            case .get: break
            }
            return holding
        }
    }

    let user: String
    var holding = Holding()
    var underWay: Command?

    /// What is wrong with what the daemon holds after it was killed and started again; null when it fits.
    /// - Parameter observed: what `GET … CACHED` gives for each profile.
    /// - Parameter newest: the number of the newest image before the kill.
    func contradiction(to observed: [String: Reply], newest: Int) -> String? {
        let done = underWay?.applied(to: holding)
        let problems = [holding, done].compactMap { $0 }.map { problem(holding: $0, observed, newest) }
        return problems.contains(nil) ? nil : "\(user), \(underWay.map { "\($0)" } ?? "nothing") under way: \(problems)"
    }

    private func problem(holding: Holding, _ observed: [String: Reply], _ newest: Int) -> String? {
        for (profile, reply) in observed {
            switch reply {
            case .error("NOLOGIN", _):
                if holding.isLoggedIn { return "NOLOGIN, though the log-in was acknowledged" }
            case .null:
                if !holding.isLoggedIn { return "logged in, though no LOGIN is left" }
                if let number = holding.put[profile] { return "\(profile): image \(number), acknowledged, is gone" }
            case .bulk(let image):
                guard holding.isLoggedIn else { return "\(profile) is served, though the user is logged out" }
                guard let number = Serial.number(of: image, profile) else {
                    return "\(profile): bytes that nobody made"
                }
                if case .get(profile)? = underWay, holding.put[profile] == nil, number <= newest { continue }
                let right = holding.put[profile] ?? holding.downloaded[profile]
                if number != right {
                    return "\(profile): image \(number) instead of \(right.map(String.init) ?? "none")"
                }
            default:
                return "\(profile): \(reply.brief)"
            }
        }
        return nil
    }

    /// Goes on from what is there.
    mutating func take(_ observed: [String: Reply]) {
        underWay = nil
        holding = Holding()
        for (profile, reply) in observed {
            if reply.code == "NOLOGIN" { return }
            holding.isLoggedIn = true
            holding.put[profile] = reply.bytes.flatMap { Serial.number(of: $0, profile) }
        }
    }
}
