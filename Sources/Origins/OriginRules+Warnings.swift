import CacheCore

extension OriginRules {
    /// Returns warnings about valid settings that are probably mistakes. Throws as ``validate(_:)`` does.
    package static func warnings(of origin: Origin) throws(OriginError) -> [OriginError] {
        let rules = try OriginRules(origin)
        // Hosts that may have private addresses.
        let open = Set(rules.links.filter(\.allowsPrivateAddresses).map(\.template.authority))
        let hasProxy = !origin.proxy.isEmpty
        var warnings: [OriginError] = []
        func warn(_ url: WebURL, _ key: String, _ place: String = "in the origin") {
            guard let kind = refusal(of: url, hasProxy: hasProxy) else { return }
            let remedy = "downloads fail without allow-private-addresses = true \(place)"
            warnings.append(OriginError(key: key, reason: "\(url.host) is \(kind); \(remedy)"))
        }
        for (index, link) in rules.links.enumerated() {
            let key = index == 0 ? "url" : "then[\(index - 1)].url"
            if !link.template.distinguishesProfiles {
                let instead = index == 0 ? "" : "; use fallback for an image without a profile"
                warnings.append(
                    OriginError(
                        key: key,
                        reason: "has no placeholder for the profile, such as {profile}; every profile gets the same "
                            + "image\(instead)"))
            }
            if !open.contains(link.template.authority) { warn(link.template.sample, key, "next to it") }
        }
        if origin.bindPassword != nil, !rules.links.contains(where: \.template.sample.scheme.isDirectory) {
            let reason = "is not used, because no url begins with ldaps:// or ldap://"
            warnings.append(OriginError(key: "bind", reason: reason))
        }
        if origin.allowPrivateAddresses { return warnings }
        for (index, prefix) in origin.allow.enumerated() {
            let url = try webURL(prefix, "allow")
            if !open.contains(url.authority) { warn(url, "allow[\(index)]") }
        }
        if let endpoint = origin.tokenEndpoint {
            warn(try webURL(endpoint.url, "token.endpoint"), "token.endpoint")
        }
        return warnings
    }

    static func webURL(_ text: String, _ key: String) throws(OriginError) -> WebURL {
        do throws(CacheFailure) {
            return try WebURL(text)
        } catch {
            throw OriginError(key: key, reason: error.description)
        }
    }

    /// Returns why ``AddressGuard`` refuses a literal address or `localhost`; nil if it does not. Other names are
    /// checked when they are resolved, unless a proxy resolves them.
    private static func refusal(of url: WebURL, hasProxy: Bool) -> String? {
        if let address = url.address { return AddressGuard().refusal(of: address) }
        let isLoopback = url.host == "localhost" || url.host.hasSuffix(".localhost")
        return isLoopback && !hasProxy ? "a loopback address" : nil
    }
}
