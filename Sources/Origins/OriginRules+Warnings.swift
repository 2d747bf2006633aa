import CacheCore

extension OriginRules {
    /// What an origin can be configured to be and hardly is meant to be: each with its key, and what would be right.
    /// - Throws: what ``validate(_:)`` throws.
    package static func warnings(of origin: Origin) throws(OriginError) -> [OriginError] {
        let rules = try OriginRules(origin)
        // Who is asked may be private only where the link, or the origin, may.
        let open = Set(rules.links.filter(\.allowsPrivateAddresses).map(\.template.authority))
        let hasProxy = !origin.proxy.isEmpty
        var warnings: [OriginError] = []
        func judge(_ url: WebURL, _ key: String, _ place: String = "of the origin") {
            guard let kind = refusal(of: url, hasProxy: hasProxy) else { return }
            let remedy = "is never asked without allow-private-addresses = true \(place)"
            warnings.append(OriginError(key: key, reason: "\(url.host) is \(kind), and \(remedy)"))
        }
        for (index, link) in rules.links.enumerated() {
            let key = index == 0 ? "url" : "then[\(index - 1)].url"
            if !link.template.tellsPeopleApart {
                let instead = index == 0 ? "" : "; fallback is for a picture of nobody"
                warnings.append(
                    OriginError(
                        key: key,
                        reason: "has no placeholder for whose picture it is, such as {profile}: all profiles get one"
                            + instead))
            }
            if !open.contains(link.template.authority) { judge(link.template.sample, key, "beside it") }
        }
        if origin.allowPrivateAddresses { return warnings }
        for (index, prefix) in origin.allow.enumerated() {
            let url = try webURL(prefix, "allow")
            if !open.contains(url.authority) { judge(url, "allow[\(index)]") }
        }
        if let endpoint = origin.tokenEndpoint {
            judge(try webURL(endpoint.url, "token.endpoint"), "token.endpoint")
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

    /// What ``AddressGuard`` has against the address that is written out, or that a name always stands for; nil for
    /// nothing. Other names are asked when they are connected to. A proxy resolves all names itself.
    private static func refusal(of url: WebURL, hasProxy: Bool) -> String? {
        if let address = url.address { return AddressGuard().refusal(of: address) }
        let isLoopback = url.host == "localhost" || url.host.hasSuffix(".localhost")
        return isLoopback && !hasProxy ? "a loopback address" : nil
    }
}
