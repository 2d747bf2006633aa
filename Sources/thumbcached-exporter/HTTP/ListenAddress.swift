import ArgumentParser
import NIOCore

/// Where the program listens: a literal address and a port.
struct ListenAddress: Sendable, CustomStringConvertible {
    let host: HostName
    /// 0 for one that the kernel chooses.
    let port: Int
    let socketAddress: SocketAddress

    static let usual = ListenAddress(host: "127.0.0.1", port: 9420)!

    /// Nil for a name: whoever looked it up would say who gets in.
    init?(host text: String, port: Int) {
        guard let host = HostName(text), let address = SocketAddress(literal: host.text, port: port) else { return nil }
        (self.host, self.port, socketAddress) = (host, port, address)
    }

    var description: String { host.text.contains(":") ? "[\(host.text)]:\(port)" : "\(host.text):\(port)" }
}

extension ListenAddress: ExpressibleByArgument {
    init?(argument: String) {
        guard let colon = argument.lastIndex(of: ":") else { return nil }
        let (host, digits) = (argument[..<colon], argument[colon...].dropFirst())
        guard host.hasPrefix("[") == host.contains(":"), let port = UInt16(digits), digits.first != "+" else {
            return nil
        }
        self.init(host: String(host), port: Int(port))
    }

    var defaultValueDescription: String { description }
}
