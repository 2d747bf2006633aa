import ArgumentParser
import NIOCore

/// A host as a Host field or an option names it: a name in lower case, or an address in one spelling.
struct HostName: Hashable, Sendable {
    let text: String

    /// - Parameter text: without a port; an IPv6 address with or without its brackets.
    init?(_ text: String) {
        let isBracketed = text.hasPrefix("[") && text.hasSuffix("]")
        let bare = isBracketed ? String(text.dropFirst().dropLast()) : text
        if let address = Self.address(bare) {
            // The brackets are IPv6's alone.
            guard !isBracketed || address.contains(":") else { return nil }
            self.text = address
            return
        }
        let name = bare.lowercased()
        guard !isBracketed, (1...253).contains(name.utf8.count), name.utf8.allSatisfy(Self.isOfName) else { return nil }
        self.text = name
    }

    /// Whether only this machine is meant, whatever a resolver says: RFC 6761, section 6.3, and RFC 6890.
    var isLoopback: Bool {
        if text == "localhost" || text == "::1" { return true }
        return text.hasPrefix("127.") && Self.address(text) != nil
    }

    private static func address(_ text: String) -> String? {
        // An address with a zone is of one interface, and in no Host field: RFC 6874.
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
    /// Nil for what is no address: nothing is looked up.
    init?(literal text: String, port: Int) {
        do {
            try self.init(ipAddress: text, port: port)
        } catch {
            return nil
        }
    }
}

extension HostName: ExpressibleByArgument {
    init?(argument: String) { self.init(argument) }
}

/// Which hosts requests may be for.
///
/// A page of any site can have its own name lead to 127.0.0.1 once it is loaded, and then read from there what it
/// likes (DNS rebinding). The browser still says for which host it asks, and that one is none of ours.
struct HostRule: Sendable {
    private let names: Set<HostName>

    /// - Parameter names: besides loopback names and addresses.
    init(_ names: [HostName]) { self.names = Set(names) }

    /// - Parameter field: what a Host field has: RFC 9110, section 7.2.
    func allows(_ field: String) -> Bool {
        var name = field[...]
        // A colon behind the bracket, or the only one, has the port behind it.
        let isBracketed = name.hasPrefix("[")
        if let colon = name.lastIndex(of: ":"), !isBracketed || name[..<colon].hasSuffix("]") {
            let port = name[colon...].dropFirst()
            guard port.utf8.count <= 5, port.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return false }
            name = name[..<colon]
        }
        // An address of IPv6 has to have its brackets here.
        guard isBracketed || !name.contains(":"), let host = HostName(String(name)) else { return false }
        return host.isLoopback || names.contains(host)
    }
}
