import NIOCore
import ProgramSupport

/// Where the program listens: a literal address and a port. Of a name others would say where it leads.
struct ListenAddress: Equatable, Sendable, CustomStringConvertible {
    let host: String
    /// 0 for one that the kernel chooses.
    let port: Int

    init(host: String, port: Int) { (self.host, self.port) = (host, port) }

    /// `192.0.2.1:9421`, `[::1]:9421`
    init?(_ text: String) {
        guard let colon = text.lastIndex(of: ":") else { return nil }
        let (host, digits) = (text[..<colon], text[colon...].dropFirst())
        guard let port = UInt16(digits), "\(port)" == digits else { return nil }
        let isBracketed = host.hasPrefix("[") && host.hasSuffix("]")
        let bare = isBracketed ? String(host.dropFirst().dropLast()) : String(host)
        guard isBracketed == bare.contains(":"), ClientAddress.normal(bare) != nil else { return nil }
        self.init(host: bare, port: Int(port))
    }

    var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

extension SettingKind<ListenAddress> {
    static var listen: Self {
        SettingKind<String>.text.map { text throws(SettingError) in
            guard let address = ListenAddress(text) else {
                throw SettingError(
                    "\(quoted(text)) is no address and port: write \"127.0.0.1:9421\" or \"[::1]:9421\"")
            }
            return address
        }
    }
}
