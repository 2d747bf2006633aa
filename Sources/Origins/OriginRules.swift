import COpenSSL
import CacheCore
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

/// An error in the configuration of an origin.
public struct OriginError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The invalid configuration key, as it is written in the file.
    public let key: String
    /// What is invalid, and what would be valid.
    public let reason: String

    public var description: String { "\(key): \(reason)" }
}

/// The parsed rules of the configured origins. An origin is parsed again when its configuration changes.
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

/// The parsed URL rules of an origin. Parsing costs tens of microseconds and performs no I/O.
package struct OriginRules: Sendable {
    let links: [Link]
    package let allow: AllowList
    /// Whether URLs under an ``allow`` entry may be at private addresses.
    private let allowsPrivateAddresses: Bool

    struct Link {
        let template: URLTemplate
        let allowsPrivateAddresses: Bool
        let showsToken: Bool
        let federation: Federation
    }

    package init(_ origin: Origin) throws(OriginError) {
        guard origin.then.count < Origin.mostLinks else {
            throw OriginError(key: "then", reason: "an origin has at most \(Origin.mostLinks) upstreams with its url")
        }
        var links = [
            Link(
                template: try URLTemplate(origin.url), allowsPrivateAddresses: origin.allowPrivateAddresses,
                showsToken: origin.showsToken, federation: origin.federation)
        ]
        try origin.federation.check(origin.url, showsToken: origin.showsToken, proxy: origin.proxy)
        for (index, link) in origin.then.enumerated() {
            do throws(OriginError) {
                let template = try URLTemplate(link.url)
                try link.federation.check(link.url, showsToken: link.showsToken, proxy: origin.proxy)
                let link = Link(
                    template: template, allowsPrivateAddresses: link.allowPrivateAddresses,
                    showsToken: link.showsToken, federation: link.federation)
                try Self.check(link, after: links)
                links.append(link)
            } catch {
                throw OriginError(key: "then[\(index)].\(error.key)", reason: error.reason)
            }
        }
        self.links = links
        allow = try AllowList(origin.allow)
        allowsPrivateAddresses = origin.allowPrivateAddresses
    }

    /// Rejects an upstream that makes the same URLs as one before it, if one of them has federation. An image is cached
    /// by its URL, so only the first would ever be requested.
    private static func check(_ link: Link, after others: [Link]) throws(OriginError) {
        let isDuplicate = others.contains { other in
            (link.federation != .none || other.federation != .none) && link.template.makesSameURLs(as: other.template)
        }
        guard !isDuplicate else {
            throw OriginError(
                key: "url",
                reason: "an upstream before it has the same url, and one of them has federation; remove one of them, "
                    + "since federation uses the url itself if a domain names no host")
        }
    }

    /// Validates the URLs of an origin. Numbers, files and the proxy are validated where the configuration is read.
    package static func validate(_ origin: Origin) throws(OriginError) {
        let rules = try OriginRules(origin)
        try validateEndpoint(of: origin)
        try rules.validateDirectories(of: origin)
    }

    /// The target of a client's request.
    package func target(origin: Origin, user: OpaqueID, imageKey: ImageKey, url: String?) throws(CacheFailure)
        -> DownloadTarget
    {
        guard let url else {
            return try target(
                user: user, imageKey.profile, size: imageKey.size == 0 ? origin.defaultSize : imageKey.size)
        }
        let named = try WebURL(url)
        try allow.check(named)
        return DownloadTarget(url: named.string, isNamedByClient: true)
    }

    /// The URLs of all upstreams, without duplicates. An upstream whose template makes no valid URL with these ids is
    /// skipped; if all are, the first error is thrown.
    private func target(user: OpaqueID, _ profile: OpaqueID, size: UInt16) throws(CacheFailure) -> DownloadTarget {
        var targets: [DownloadTarget] = []
        var failure: CacheFailure?
        for link in links {
            do throws(CacheFailure) {
                let url = try link.template.filled(profile: profile, user: user, size: size)
                if targets.contains(where: { $0.url == url }) { continue }
                targets.append(
                    DownloadTarget(
                        url: url, isNamedByClient: false,
                        showsToken: link.showsToken && !link.template.sample.scheme.isDirectory,
                        federatedDomain: link.federation.domain(of: profile)))
            } catch {
                failure = failure ?? error
            }
        }
        guard var first = targets.first else { throw failure ?? .invalid("the origin has no URL") }
        first.others = Array(targets.dropFirst())
        return first
    }

    /// Whether the URL may be at a private address: if it has the scheme, host and port of the first request and that
    /// upstream may, or if it is under an `allow` entry of an origin that may. So the permission of one upstream does
    /// not apply to the redirects of another.
    /// - Parameter start: the URL of the first request.
    package func mayBePrivate(_ url: WebURL, from start: WebURL) -> Bool {
        let isOwn = url.authority == start.authority
        if isOwn, links.contains(where: { $0.allowsPrivateAddresses && $0.template.authority == url.authority }) {
            return true
        }
        guard allowsPrivateAddresses else { return false }
        do { try allow.check(url) } catch { return false }
        return true
    }

    /// Whether the user's token may be sent to the scheme, host and port of a URL.
    package func showsToken(to url: WebURL) -> Bool {
        links.contains { $0.showsToken && $0.template.authority == url.authority }
    }

    /// See ``URLTemplate/parse(_:)``.
    package func parse(_ url: String) -> WebURL? {
        for link in links {
            if let known = link.template.parse(url) { return known }
        }
        return nil
    }

    /// A token endpoint must be https, because it receives secrets (RFC 6749 section 3.2); http is permitted with
    /// allow-private-addresses, in the operator's own network.
    private static func validateEndpoint(of origin: Origin) throws(OriginError) {
        guard let endpoint = origin.tokenEndpoint else { return }
        let url = try webURL(endpoint.url, "token.endpoint")
        // RFC 6749 section 3.2 forbids a fragment, which WebURL would drop silently.
        guard !endpoint.url.utf8.contains(UInt8(ascii: "#")) else {
            throw OriginError(key: "token.endpoint", reason: "the URL of a token endpoint must not have a fragment")
        }
        guard url.scheme == .https || origin.allowPrivateAddresses else {
            throw OriginError(
                key: "token.endpoint",
                reason: "must begin with https://, because it receives tokens; "
                    + "http:// needs allow-private-addresses = true")
        }
        for (isFit, key) in [
            (isClientText(endpoint.clientID.utf8), "token.client-id"),
            (endpoint.clientSecret?.withBytes { isClientText($0) } ?? true, "token.client-secret-file"),
        ] where !isFit {
            throw OriginError(key: key, reason: "must have 1 to 1024 printable ASCII characters (RFC 6749 appendix A)")
        }
    }

    /// A bind with a name and no password would be anonymous (RFC 4513 section 5.1.2).
    private func validateDirectories(of origin: Origin) throws(OriginError) {
        let directories = links.map(\.template.sample.scheme).filter(\.isDirectory)
        guard directories.isEmpty || origin.proxy.isEmpty else {
            throw OriginError(key: "proxy", reason: "cannot be used with LDAP; remove it, or the LDAP URL")
        }
        guard origin.bindName.isEmpty == (origin.bindPassword == nil) else {
            throw OriginError(
                key: origin.bindName.isEmpty ? "bind.name" : "bind.password-file",
                reason: "is missing; a bind has name and password-file")
        }
        guard let password = origin.bindPassword else { return }
        guard !directories.contains(.ldap) || origin.allowPrivateAddresses else {
            throw OriginError(
                key: "bind",
                reason: "needs ldaps://, because ldap:// sends the password unencrypted; "
                    + "ldap:// needs allow-private-addresses = true")
        }
        // They end a string of libcurl.
        guard !origin.bindName.utf8.contains(0) else {
            throw OriginError(key: "bind.name", reason: "contains a NUL character; write a name without it")
        }
        guard !password.withBytes({ $0.contains(0) }) else {
            throw OriginError(key: "bind.password-file", reason: "contains a NUL byte; write the password as text")
        }
    }

    /// RFC 6749 appendix A.1 and A.2.
    private static func isClientText(_ bytes: some Collection<UInt8>) -> Bool {
        bytes.count <= 1_024 && TokenText.isVisible(bytes)
    }
}
