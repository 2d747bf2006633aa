/// Decides which addresses an origin may not connect to without allow-private-addresses (F30 to F32, F58).
///
/// It is applied when a socket is opened, so that the spelling of a URL does not matter. It refuses the addresses that
/// the IANA registries of special-purpose addresses (RFC 6890 and its updates) do not list as globally reachable, and
/// for IPv6 everything outside of 2000::/3.
package struct AddressGuard: Sendable {
    /// Addresses that are always permitted. For tests, which have no public address to serve from.
    package var exceptions: Set<IPAddress> = []
    /// Addresses of this machine that are permitted. For tests.
    package var ownExceptions: Set<IPAddress> = []

    package init() {}

    /// The reason to refuse an address, such as "a private address"; nil if it is permitted.
    package func refusal(of address: IPAddress) -> String? {
        if exceptions.contains(address) { return nil }
        switch address {
        case .v4(let bits): return Self.refusedV4.first { $0.contains(bits) }?.name
        case .v6(let high, let low):
            // The kernel treats ::ffff:a.b.c.d as a.b.c.d, and so does a NAT64 with 64:ff9b::a.b.c.d (RFC 6052).
            let isMapped = high == 0 && low >> 32 == 0xFFFF
            let isTranslated = high == 0x0064_FF9B_0000_0000 && low >> 32 == 0
            if isMapped || isTranslated {
                let bits = UInt32(truncatingIfNeeded: low)
                return Self.refusedV4.first { $0.contains(bits) }?.name
            }
            if high == 0 && low == 1 { return "a loopback address" }
            return Self.refusedV6.first { $0.contains(high) }?.name
        }
    }

    /// The reason to refuse a connection, by the addresses of its two ends. A service on a public address of this
    /// machine may be meant for local programs only; a connection to it has the same address at both ends.
    package func refusal(ofRemote remote: IPAddress, local: IPAddress?) -> String? {
        if let reason = refusal(of: remote) { return reason }
        return remote == local && !ownExceptions.contains(remote) ? "an address of this machine" : nil
    }

    private static let refusedV4: [Network<UInt32>] = [
        Network(0, 0, 0, 0, 8, "an unspecified address"),
        Network(10, 0, 0, 0, 8, "a private address"),
        Network(100, 64, 0, 0, 10, "a carrier's shared address"),
        Network(127, 0, 0, 0, 8, "a loopback address"),
        // Azure's metadata server: in a public range, but not public.
        Network(168, 63, 129, 16, 32, "a metadata address"),
        Network(169, 254, 0, 0, 16, "a link-local or metadata address"),
        Network(172, 16, 0, 0, 12, "a private address"),
        Network(192, 0, 0, 0, 24, "a reserved address"),
        Network(192, 0, 2, 0, 24, "a documentation address"),
        Network(192, 88, 99, 0, 24, "a 6to4 relay's address"),
        Network(192, 168, 0, 0, 16, "a private address"),
        Network(198, 18, 0, 0, 15, "a benchmarking address"),
        Network(198, 51, 100, 0, 24, "a documentation address"),
        Network(203, 0, 113, 0, 24, "a documentation address"),
        Network(224, 0, 0, 0, 4, "a multicast address"),
        Network(255, 255, 255, 255, 32, "the broadcast address"),
        Network(240, 0, 0, 0, 4, "a reserved address"),
    ]

    /// By the upper 64 bits; the first match counts. The last three are everything outside of 2000::/3.
    private static let refusedV6: [Network<UInt64>] = [
        Network(0x0000_0000_0000_0000, 64, "an unspecified or IPv4-compatible address"),
        Network(0x0064_FF9B_0001_0000, 48, "a local translation address"),
        Network(0x0100_0000_0000_0000, 64, "a discard address"),
        Network(0xFC00_0000_0000_0000, 7, "a unique local address"),
        Network(0xFE80_0000_0000_0000, 10, "a link-local address"),
        Network(0xFEC0_0000_0000_0000, 10, "a site-local address"),
        Network(0xFF00_0000_0000_0000, 8, "a multicast address"),
        Network(0x2001_0000_0000_0000, 32, "a Teredo address"),
        Network(0x2001_0002_0000_0000, 48, "a benchmarking address"),
        Network(0x2001_0000_0000_0000, 23, "a reserved address"),
        Network(0x2001_0DB8_0000_0000, 32, "a documentation address"),
        Network(0x2002_0000_0000_0000, 16, "a 6to4 address"),
        Network(0x3FFF_0000_0000_0000, 20, "a documentation address"),
        Network(0x0000_0000_0000_0000, 3, "a reserved address"),
        Network(0x4000_0000_0000_0000, 2, "a reserved address"),
        Network(0x8000_0000_0000_0000, 1, "a reserved address"),
    ]
}

/// A network prefix; for IPv6 of the upper 64 bits.
private struct Network<Bits: FixedWidthInteger & Sendable>: Sendable {
    let prefix: Bits
    let mask: Bits
    let name: String

    init(_ prefix: Bits, _ length: Int, _ name: String) {
        (self.prefix, mask, self.name) = (prefix, Bits.max << (Bits.bitWidth - length), name)
    }

    func contains(_ bits: Bits) -> Bool { bits & mask == prefix }
}

extension Network<UInt32> {
    init(_ first: UInt32, _ second: UInt32, _ third: UInt32, _ fourth: UInt32, _ length: Int, _ name: String) {
        self.init(first << 24 | second << 16 | third << 8 | fourth, length, name)
    }
}
