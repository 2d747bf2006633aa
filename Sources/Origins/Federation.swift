import CacheCore

extension Federation {
    /// Whether this build can look up SRV records.
    static var isBuilt: Bool {
        #if FEDERATION
            true
        #else
            false
        #endif
    }

    /// Checks whether an upstream's URL is safe to send to a host that a foreign domain names: https, with a digest of
    /// the address and nothing else that identifies the profile.
    func check(_ url: String, showsToken: Bool, proxy: String) throws(OriginError) {
        guard self == .libravatar else { return }
        func flaw(_ reason: String) -> OriginError { OriginError(key: "federation", reason: reason) }
        guard Self.isBuilt else {
            throw flaw("this build cannot look up SRV records; build with libc-ares-dev installed, or remove the key")
        }
        let rest = url.drop { $0 != ":" }.dropFirst(3)
        let path = rest.prefix { $0 != "?" }.drop { $0 != "/" }
        guard url.lowercased().hasPrefix("https://"),
            ["/avatar/{profile_sha256}", "/avatar/{profile_md5}"].contains(path)
        else {
            throw flaw("url must be https:// and a host, then /avatar/{profile_sha256} or /avatar/{profile_md5}")
        }
        guard !url.contains("{profile}"), !url.contains("{user}") else {
            throw flaw("url must not contain {profile} or {user}, because domains choose the hosts that receive it")
        }
        guard !showsToken else {
            throw flaw("it needs show-token = false, because domains choose the hosts that would receive the token")
        }
        guard proxy.isEmpty else {
            throw flaw("it cannot be combined with a proxy, which resolves names itself; remove one of them")
        }
    }

    /// The domain whose SRV records to query for a profile; nil if the profile is not a mail address.
    func domain(of profile: OpaqueID) -> String? {
        self == .libravatar ? MailDomain.domain(of: profile.asMailAddress) : nil
    }
}

/// The domain of a mail address, for DNS queries.
package enum MailDomain {
    /// Maximum length in bytes: 253 of a DNS name, minus 18 of the service's prefix (``ServiceName``).
    static let longest = 235
    private static let longestLabel = 63
    /// Top-level names that must not be queried in DNS (RFC 6761, RFC 6762, RFC 7686).
    private static let notInDNS: Set<Substring> = ["local", "localhost", "invalid", "onion"]

    /// The domain of an address; nil if it is invalid. Other scripts must be in their `xn--` form.
    /// - Parameter address: in lower case, without surrounding blanks.
    static func domain(of address: [UInt8]) -> String? {
        guard let at = address.lastIndex(of: UInt8(ascii: "@")), at > address.startIndex else { return nil }
        let bytes = address[(at + 1)...]
        guard bytes.count <= longest else { return nil }
        let domain = String(decoding: bytes, as: UTF8.self)
        let labels = domain.split(separator: ".", omittingEmptySubsequences: false)
        guard labels.count > 1, labels.allSatisfy({ isLabel($0.utf8) }), let top = labels.last,
            // The last label of an IPv4 address, or something like it, is a number.
            let first = top.utf8.first, !isDigit(first), isInDNS(domain)
        else { return nil }
        return domain
    }

    /// - Parameter name: in lower case, without a final dot.
    package static func isInDNS(_ name: String) -> Bool {
        !notInDNS.contains(name.split(separator: ".").last ?? "")
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

    private static func isLabel(_ label: Substring.UTF8View) -> Bool {
        let hyphen = UInt8(ascii: "-")
        return (1...longestLabel).contains(label.count) && label.first != hyphen && label.last != hyphen
            && label.allSatisfy { byte in
                isDigit(byte) || byte == hyphen || (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
            }
    }
}
