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

    /// Whether a link's URL can be asked of whomever a stranger's domain names: of a host that nobody chose but that
    /// domain, over https, with a digest and nothing else of whose picture it is.
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
            throw flaw("its url must be https:// and a host, then /avatar/{profile_sha256} or /avatar/{profile_md5}")
        }
        guard !url.contains("{profile}"), !url.contains("{user}") else {
            throw flaw("a domain chooses who is asked, so that its url must hold neither {profile} nor {user}")
        }
        guard !showsToken else {
            throw flaw("a domain chooses who is asked, so that no token is shown: write show-token = false")
        }
        guard proxy.isEmpty else {
            throw flaw("an origin with a proxy asks no name server; leave one of the two out")
        }
    }

    /// The domain to ask for whoever has the id; nil where the link's own URL is for it, as for what is no address.
    func domain(of profile: OpaqueID) -> String? {
        self == .libravatar ? MailDomain.domain(of: profile.asMailAddress) : nil
    }
}

/// The domain of a mail address, as DNS can be asked for it.
package enum MailDomain {
    /// Bytes. A name in DNS has 253, and what is put in front of this has 18 (``ServiceName``).
    static let longest = 235
    private static let longestLabel = 63
    /// Names that are in no DNS, which must not be asked for them (RFC 6761, RFC 6762, RFC 7686).
    private static let notInDNS: Set<Substring> = ["local", "localhost", "invalid", "onion"]

    /// Strict: other scripts are for their `xn--` form, and what is written otherwise is no domain.
    /// - Parameter address: without blanks around it, in lower case.
    static func domain(of address: [UInt8]) -> String? {
        guard let at = address.lastIndex(of: UInt8(ascii: "@")), at > address.startIndex else { return nil }
        let bytes = address[(at + 1)...]
        guard bytes.count <= longest else { return nil }
        let domain = String(decoding: bytes, as: UTF8.self)
        let labels = domain.split(separator: ".", omittingEmptySubsequences: false)
        guard labels.count > 1, labels.allSatisfy({ isLabel($0.utf8) }), let top = labels.last,
            // An IPv4 address, or something like it, ends in a number.
            let first = top.utf8.first, !isDigit(first), isInDNS(domain)
        else { return nil }
        return domain
    }

    /// - Parameter name: in lower case, without a dot at its end.
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
