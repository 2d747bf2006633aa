/// Says which addresses an origin may not reach unless it is allowed private ones (F30 to F32, F58).
///
/// The rule is about addresses and not about names or spellings of URLs: it is asked where a socket is about to be
/// opened, when every spelling has become an address. What is refused is what the IANA registries of special-purpose
/// addresses (RFC 6890 and its updates) do not call globally reachable; for IPv6 everything outside of 2000::/3 to
/// begin with.
struct AddressGuard: Sendable {
    /// Addresses that pass whatever they are. Empty but in tests, which have no public address to serve from.
    var exceptions: Set<IPAddress> = []
    /// Addresses of this machine that pass. Empty but in tests.
    var ownExceptions: Set<IPAddress> = []

    /// Why the address may not be reached, as in "a private address"; nil when it may.
    func refusal(of address: IPAddress) -> String? {
        if exceptions.contains(address) { return nil }
        switch address {
        case .v4(let bits): return Self.refusal(v4: bits)
        case .v6(let high, let low): return Self.refusal(v6: high, low)
        }
    }

    /// The same of a connection, by the addresses of its two ends. A public address of this machine is in no registry,
    /// and what listens there is often meant for its own programs alone; but a connection to it has it at both ends.
    func refusal(ofRemote remote: IPAddress, local: IPAddress?) -> String? {
        if let reason = refusal(of: remote) { return reason }
        return remote == local && !ownExceptions.contains(remote) ? "an address of this machine" : nil
    }

    private static func refusal(v4 bits: UInt32) -> String? {
        refusedV4.first { $0.contains(bits) }?.name
    }

    private static func refusal(v6 high: UInt64, _ low: UInt64) -> String? {
        // ::ffff:a.b.c.d is a.b.c.d to the kernel, and 64:ff9b::a.b.c.d is to a NAT64 (RFC 6052), which is how a
        // network without IPv4 reaches every public host that has nothing else: they are what is within them.
        let isMapped = high == 0 && low >> 32 == 0xFFFF
        let isTranslated = high == 0x0064_FF9B_0000_0000 && low >> 32 == 0
        if isMapped || isTranslated { return refusal(v4: UInt32(truncatingIfNeeded: low)) }
        if high == 0 && low == 1 { return "a loopback address" }
        return refusedV6.first { $0.contains(high) }?.name
    }

    private static let refusedV4: [V4Network] = [
        V4Network(0, 0, 0, 0, 8, "an unspecified address"),
        V4Network(10, 0, 0, 0, 8, "a private address"),
        V4Network(100, 64, 0, 0, 10, "a carrier's shared address"),
        V4Network(127, 0, 0, 0, 8, "a loopback address"),
        // Azure's metadata and wire server: of a public range, and never public.
        V4Network(168, 63, 129, 16, 32, "a metadata address"),
        V4Network(169, 254, 0, 0, 16, "a link-local or metadata address"),
        V4Network(172, 16, 0, 0, 12, "a private address"),
        V4Network(192, 0, 0, 0, 24, "a reserved address"),
        V4Network(192, 0, 2, 0, 24, "a documentation address"),
        V4Network(192, 88, 99, 0, 24, "a 6to4 relay's address"),
        V4Network(192, 168, 0, 0, 16, "a private address"),
        V4Network(198, 18, 0, 0, 15, "a benchmarking address"),
        V4Network(198, 51, 100, 0, 24, "a documentation address"),
        V4Network(203, 0, 113, 0, 24, "a documentation address"),
        V4Network(224, 0, 0, 0, 4, "a multicast address"),
        V4Network(255, 255, 255, 255, 32, "the broadcast address"),
        V4Network(240, 0, 0, 0, 4, "a reserved address"),
    ]

    /// By the upper 64 bits, the first that fits. The last ones are all that is not 2000::/3.
    private static let refusedV6: [V6Network] = [
        V6Network(0x0000_0000_0000_0000, 64, "an unspecified or IPv4-compatible address"),
        V6Network(0x0064_FF9B_0001_0000, 48, "a local translation address"),
        V6Network(0x0100_0000_0000_0000, 64, "a discard address"),
        V6Network(0xFC00_0000_0000_0000, 7, "a unique local address"),
        V6Network(0xFE80_0000_0000_0000, 10, "a link-local address"),
        V6Network(0xFEC0_0000_0000_0000, 10, "a site-local address"),
        V6Network(0xFF00_0000_0000_0000, 8, "a multicast address"),
        V6Network(0x2001_0000_0000_0000, 32, "a Teredo address"),
        V6Network(0x2001_0002_0000_0000, 48, "a benchmarking address"),
        V6Network(0x2001_0000_0000_0000, 23, "a reserved address"),
        V6Network(0x2001_0DB8_0000_0000, 32, "a documentation address"),
        V6Network(0x2002_0000_0000_0000, 16, "a 6to4 address"),
        V6Network(0x3FFF_0000_0000_0000, 20, "a documentation address"),
        V6Network(0x0000_0000_0000_0000, 3, "a reserved address"),
        V6Network(0x4000_0000_0000_0000, 2, "a reserved address"),
        V6Network(0x8000_0000_0000_0000, 1, "a reserved address"),
    ]
}

private struct V4Network: Sendable {
    let prefix: UInt32
    let mask: UInt32
    let name: String

    init(_ first: UInt32, _ second: UInt32, _ third: UInt32, _ fourth: UInt32, _ length: UInt32, _ name: String) {
        self.prefix = first << 24 | second << 16 | third << 8 | fourth
        self.mask = UInt32.max << (32 - length)
        self.name = name
    }

    func contains(_ bits: UInt32) -> Bool { bits & mask == prefix }
}

private struct V6Network: Sendable {
    let prefix: UInt64
    let mask: UInt64
    let name: String

    init(_ prefix: UInt64, _ length: UInt64, _ name: String) {
        self.prefix = prefix
        self.mask = UInt64.max << (64 - length)
        self.name = name
    }

    func contains(_ high: UInt64) -> Bool { high & mask == prefix }
}
