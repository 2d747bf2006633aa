import LinuxSupport
import NIOCore
import ProgramSupport

/// A listening address: a literal address and a port, or the path of a Unix socket. Names are not resolved.
enum ListenAddress: Equatable, Sendable, CustomStringConvertible {
    /// Port 0 lets the kernel choose one.
    case tcp(HostName, port: Int)
    case unix(path: String)

    /// Parses `127.0.0.1:9420`, `[::1]:9420` or `/run/thumbcached-http/images.sock`. Returns nil for names: a resolver
    /// would decide which machines can connect.
    init?(_ text: String) {
        if text.hasPrefix("/") {
            guard text.utf8.count <= UnixAddress.longestPath, !text.utf8.contains(0) else { return nil }
            self = .unix(path: text)
            return
        }
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let (name, digits) = (text[..<colon], text[colon...].dropFirst())
        guard name.hasPrefix("[") == name.contains(":"), let port = UInt16(digits), digits.first != "+",
            let host = HostName(String(name)), SocketAddress(literal: host.text, port: 0) != nil
        else { return nil }
        self = .tcp(host, port: Int(port))
    }

    /// The address of a TCP listener; nil for a Unix socket.
    var host: HostName? {
        if case .tcp(let host, _) = self { host } else { nil }
    }

    var description: String {
        switch self {
        case .tcp(let host, let port): host.text.contains(":") ? "[\(host.text)]:\(port)" : "\(host.text):\(port)"
        case .unix(let path): path
        }
    }
}

extension SettingParser<ListenAddress?> {
    /// `""` for no listener.
    static var listener: Self {
        SettingParser<String>.text.map { text throws(SettingError) in
            if text.isEmpty { return nil }
            guard let address = ListenAddress(text) else {
                throw SettingError(
                    "\(quoted(text)) is not an address with a port or a socket path: write \"127.0.0.1:9420\", "
                        + "\"[::1]:9420\", \"/run/thumbcached-http/images.sock\", or \"\" for no listener")
            }
            return address
        }
    }
}

/// The socket of a listener: to be created, or passed by systemd.
enum ListeningPlace: Equatable, Sendable {
    case address(ListenAddress)
    /// A socket that systemd has passed.
    case passed(CInt, isUnix: Bool)

    /// Whether only programs of this machine that may open the socket's file can connect. A browser cannot.
    var isUnix: Bool {
        switch self {
        case .address(.unix), .passed(_, isUnix: true): true
        case .address(.tcp), .passed(_, isUnix: false): false
        }
    }

    var host: HostName? {
        if case .address(let address) = self { address.host } else { nil }
    }
}

extension SocketAddress {
    /// Address and port as in a URL, or the path.
    var literal: String {
        if let pathname { return pathname }
        let (host, port) = (ipAddress ?? "", port ?? 0)
        return host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}
