import LinuxSupport
import NIOCore
import ProgramSupport

/// A normalized host of a Host field or an option: a name in lower case, or an address in canonical form.
struct HostName: Hashable, Sendable {
    let text: String

    /// - Parameter text: without a port; an IPv6 address with or without its brackets.
    init?(_ text: String) {
        let isBracketed = text.hasPrefix("[") && text.hasSuffix("]")
        let bare = isBracketed ? String(text.dropFirst().dropLast()) : text
        if let address = Self.address(bare) {
            // Only IPv6 addresses have brackets.
            guard !isBracketed || address.contains(":") else { return nil }
            self.text = address
            return
        }
        let name = bare.lowercased()
        guard !isBracketed, (1...253).contains(name.utf8.count), name.utf8.allSatisfy(Self.isOfName) else { return nil }
        self.text = name
    }

    /// Whether the host is this machine without a name lookup (RFC 6761, section 6.3, and RFC 6890).
    var isLoopback: Bool {
        if text == "localhost" || text == "::1" { return true }
        return text.hasPrefix("127.") && Self.address(text) != nil
    }

    private static func address(_ text: String) -> String? {
        // A Host field cannot contain a zone (RFC 6874).
        text.contains("%") ? nil : SocketAddress(literal: text, port: 0)?.ipAddress
    }

    private static func isOfName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"): true
        case UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"): true
        default: false
        }
    }
}

extension SocketAddress {
    /// Parses a literal address. Returns nil for names: nothing is resolved.
    init?(literal text: String, port: Int) {
        do {
            try self.init(ipAddress: text, port: port)
        } catch {
            return nil
        }
    }
}

extension SettingParser<HostName> {
    static var host: Self {
        SettingParser<String>.text.map { text throws(SettingError) in
            guard let host = HostName(text) else {
                throw SettingError(
                    "\(quoted(text)) is not a host: write a name or an address without a port, as in "
                        + "\"metrics.example.org\"")
            }
            return host
        }
    }
}

/// The valid values of the field Host.
///
/// Protects against DNS rebinding: a page of another site changes its name's address to 127.0.0.1 and reads this
/// server's responses. The browser still sends the page's own name in Host.
struct HostRule: Sendable {
    /// nil if every host is valid.
    private let names: Set<HostName>?

    /// - Parameter names: valid hosts in addition to loopback names and addresses.
    init(_ names: [HostName]) { self.names = Set(names) }

    /// The rule of a listener. No browser can connect to a Unix socket, and the proxy that does decides about hosts.
    init(_ place: ListeningPlace, _ names: [HostName]) {
        self.names = place.isUnix ? nil : Set(names + [place.host].compactMap { $0 })
    }

    /// - Parameter field: the value of the field Host (RFC 9110, section 7.2).
    func allows(_ field: String) -> Bool {
        guard let names else { return true }
        var name = field[...]
        // The port follows a colon after the bracket, or the only colon.
        let isBracketed = name.hasPrefix("[")
        if let colon = name.lastIndex(of: ":"), !isBracketed || name[..<colon].hasSuffix("]") {
            let port = name[colon...].dropFirst()
            guard port.utf8.count <= 5, port.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return false }
            name = name[..<colon]
        }
        // An IPv6 address needs its brackets here.
        guard isBracketed || !name.contains(":"), let host = HostName(String(name)) else { return false }
        return host.isLoopback || names.contains(host)
    }
}
