/// The words that may follow the positional arguments of a command.
enum Option: UInt8, CaseIterable, Sendable {
    case size, url, wait, cached, noWait, ifNot, meta, ttl, uid, session, hold, origin, token, refresh, auth, setName

    init?(_ word: Word) {
        switch word {
        case "SIZE": self = .size
        case "URL": self = .url
        case "WAIT": self = .wait
        case "CACHED": self = .cached
        case "NOWAIT": self = .noWait
        case "IFNOT": self = .ifNot
        case "META": self = .meta
        case "TTL": self = .ttl
        case "UID": self = .uid
        case "SESSION": self = .session
        case "HOLD": self = .hold
        case "ORIGIN": self = .origin
        case "TOKEN": self = .token
        case "REFRESH": self = .refresh
        case "AUTH": self = .auth
        case "SETNAME": self = .setName
        default: return nil
        }
    }

    var name: String { "\(self)".uppercased() }
}
