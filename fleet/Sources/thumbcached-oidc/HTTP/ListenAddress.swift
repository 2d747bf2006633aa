import LinuxSupport
import ProgramSupport

/// The listening address: a literal address and port, or the path of a Unix socket. Names are not resolved.
enum ListenAddress: Equatable, Sendable, CustomStringConvertible {
    /// Port 0 lets the kernel choose one.
    case tcp(host: String, port: Int)
    case unix(path: String)

    /// `192.0.2.1:9421`, `[::1]:9421`, `/run/thumbcached-oidc/http.sock`
    init?(_ text: String) {
        if text.hasPrefix("/") {
            guard text.utf8.count <= UnixAddress.longestPath, !text.utf8.contains(0) else { return nil }
            self = .unix(path: text)
            return
        }
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let (host, digits) = (text[..<colon], text[colon...].dropFirst())
        guard let port = UInt16(digits), "\(port)" == digits else { return nil }
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        let bare = isBracketed ? String(host.dropFirst().dropLast()) : String(host)
        guard isBracketed == bare.contains(":"), ClientAddress.normal(bare) != nil else { return nil }
        self = .tcp(host: bare, port: Int(port))
    }

    var description: String {
        switch self {
        case .tcp(let host, let port): host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        case .unix(let path): path
        }
    }
}

extension SettingParser<ListenAddress> {
    static var listen: Self {
        SettingParser<String>.text.map { text throws(SettingError) in
            guard let address = ListenAddress(text) else {
                throw SettingError(
                    "\(quoted(text)) is not an address with a port or a socket path: write \"127.0.0.1:9421\", "
                        + "\"[::1]:9421\" or \"/run/thumbcached-oidc/http.sock\"")
            }
            return address
        }
    }
}
