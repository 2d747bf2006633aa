import LinuxSupport
import NIOConcurrencyHelpers
import ThumbnailCache

/// What is wrong with an origin's configuration.
public struct OriginError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The configuration key at fault, as it is written in the file.
    public let key: String
    /// One sentence: what is wrong and what would be right.
    public let reason: String

    public var description: String { "\(key): \(reason)" }
}

/// The rules of the origins that are configured, each taken apart once while its configuration stays the same.
package final class OriginRulesCache: Sendable {
    private let entries = NIOLockedValueBox<[String: (origin: Origin, rules: OriginRules)]>([:])

    package init() {}

    package func rules(of origin: Origin) throws(OriginError) -> OriginRules {
        if let entry = entries.withLockedValue({ $0[origin.name] }), entry.origin == origin { return entry.rules }
        let rules = try OriginRules(origin)
        entries.withLockedValue { $0[origin.name] = (origin, rules) }
        return rules
    }
}

/// An origin as the fetcher reads it. Taking one apart costs tens of microseconds and asks nobody.
package struct OriginRules: Sendable {
    package let template: URLTemplate
    package let allow: AllowList

    package init(_ origin: Origin) throws(OriginError) {
        template = try URLTemplate(origin.url)
        allow = try AllowList(origin.allow)
    }

    /// What only the fetcher can tell of an origin before it is asked: whether its URLs are such. Numbers, files and
    /// the proxy are judged where the configuration is read.
    package static func validate(_ origin: Origin) throws(OriginError) {
        _ = try OriginRules(origin)
        try validateEndpoint(of: origin)
    }

    /// The target that a client's request leads to.
    package func target(origin: Origin, user: OpaqueID, slot: Slot, url: String?) throws(CacheFailure) -> DownloadTarget
    {
        guard let url else {
            let size = slot.size == 0 ? origin.defaultSize : slot.size
            let filled = try template.filled(profile: slot.profile, user: user, size: size)
            return DownloadTarget(url: filled, isNamedByClient: false)
        }
        let named = try WebURL(url)
        try allow.check(named)
        return DownloadTarget(url: named.string, isNamedByClient: true)
    }

    /// Whether the configuration names the URL's host: as the template's, or by an `allow` entry.
    package func names(_ url: WebURL) -> Bool {
        if template.authority == url.authority { return true }
        do { try allow.check(url) } catch { return false }
        return true
    }

    // MARK: The token endpoint

    /// Secrets go there, so that it is https (RFC 6749 section 3.2), but for an origin that may be at private
    /// addresses, which are the operator's own network.
    private static func validateEndpoint(of origin: Origin) throws(OriginError) {
        guard let endpoint = origin.tokenEndpoint else { return }
        let url: WebURL
        do throws(CacheFailure) {
            url = try WebURL(endpoint.url)
        } catch {
            throw OriginError(key: "token.endpoint", reason: error.description)
        }
        // RFC 6749 section 3.2: an endpoint's URL has no fragment; WebURL would drop it without a word.
        guard !endpoint.url.utf8.contains(UInt8(ascii: "#")) else {
            throw OriginError(key: "token.endpoint", reason: "the URL of a token endpoint has no fragment")
        }
        guard url.scheme == .https || origin.allowPrivateAddresses else {
            throw OriginError(
                key: "token.endpoint",
                reason: "tokens are sent there, so it must begin with https://; "
                    + "http:// is for an origin with allow-private-addresses = true")
        }
        for (isFit, key) in [
            (isClientText(endpoint.clientID.utf8), "token.client-id"),
            (endpoint.clientSecret?.withBytes { isClientText($0) } ?? true, "token.client-secret-file"),
        ] where !isFit {
            throw OriginError(key: key, reason: "it has 1 to 1024 printable ASCII characters (RFC 6749 appendix A)")
        }
    }

    /// RFC 6749 appendix A.1 and A.2.
    private static func isClientText(_ bytes: some Collection<UInt8>) -> Bool {
        bytes.count <= 1_024 && TokenText.isVisible(bytes)
    }
}
