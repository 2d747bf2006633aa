import LinuxSupport

/// The address of a server: a Unix socket, or a host and a port.
package enum RedisAddress: Sendable, Equatable, CustomStringConvertible {
    case unix(String)
    case tcp(host: String, port: Int)

    /// `/path`, `host:port`, `[2001:db8::1]:port`, or a host alone.
    package init?(_ text: String, defaultPort: Int) {
        if text.hasPrefix("/") {
            guard text.utf8.count <= UnixAddress.longestPath else { return nil }
            self = .unix(text)
            return
        }
        var host = text[...]
        var port = "\(defaultPort)"[...]
        if text.hasPrefix("[") {
            guard let end = text.firstIndex(of: "]") else { return nil }
            host = text[text.index(after: text.startIndex)..<end]
            let rest = text[text.index(after: end)...]
            if !rest.isEmpty {
                guard rest.hasPrefix(":") else { return nil }
                port = rest.dropFirst()
            }
        } else if let colon = text.lastIndex(of: ":") {
            (host, port) = (text[..<colon], text[text.index(after: colon)...])
            // In an IPv6 address without brackets the port is ambiguous.
            if host.contains(":") { return nil }
        }
        guard !host.isEmpty, let number = Int(port), 1...65_535 ~= number, "\(number)" == port else { return nil }
        guard host.unicodeScalars.allSatisfy({ $0.isASCII && $0.value > 0x20 && $0.value < 0x7F && $0 != "/" })
        else { return nil }
        self = .tcp(host: String(host), port: number)
    }

    package var description: String {
        switch self {
        case .unix(let path): path
        case .tcp(let host, let port): host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        }
    }

    /// The host name or address that the certificate must match; nil for a Unix socket.
    package var host: String? { if case .tcp(let host, _) = self { host } else { nil } }
}
