import COpenSSL
import CacheCore
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

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
    let links: [Link]
    package let allow: AllowList
    /// Whether what is under an ``allow`` entry may be at a private address.
    private let allowsPrivateAddresses: Bool

    struct Link {
        let template: URLTemplate
        let allowsPrivateAddresses: Bool
        let showsToken: Bool
        let federation: Federation
    }

    package init(_ origin: Origin) throws(OriginError) {
        guard origin.then.count < Origin.mostLinks else {
            throw OriginError(key: "then", reason: "an origin asks \(Origin.mostLinks) at most, its url among them")
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
                try Self.check(link, behind: links)
                links.append(link)
            } catch {
                throw OriginError(key: "then[\(index)].\(error.key)", reason: error.reason)
            }
        }
        self.links = links
        allow = try AllowList(origin.allow)
        allowsPrivateAddresses = origin.allowPrivateAddresses
    }

    /// To a cache a picture is its URL's. Of two links with the same only one would ever be asked, and without a word.
    private static func check(_ link: Link, behind others: [Link]) throws(OriginError) {
        let isTaken = others.contains { other in
            (link.federation != .none || other.federation != .none) && link.template.makesSameURLs(as: other.template)
        }
        guard !isTaken else {
            throw OriginError(
                key: "url",
                reason: "a link before it has the same, and one of them has federation; leave one of the two out: "
                    + "a link with federation asks its own url where the domain names nobody")
        }
    }

    /// What only the fetcher can tell of an origin before it is asked: whether its URLs are such. Numbers, files and
    /// the proxy are judged where the configuration is read.
    package static func validate(_ origin: Origin) throws(OriginError) {
        _ = try OriginRules(origin)
        try validateEndpoint(of: origin)
    }

    /// The target that a client's request leads to.
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

    /// The first link's URL with those of the others. Of several that are the same the first counts, and a link that no
    /// URL can be made of with these ids has no picture; there is one that can, or it is an error.
    private func target(user: OpaqueID, _ profile: OpaqueID, size: UInt16) throws(CacheFailure) -> DownloadTarget {
        var targets: [DownloadTarget] = []
        var failure: CacheFailure?
        for link in links {
            do throws(CacheFailure) {
                let url = try link.template.filled(profile: profile, user: user, size: size)
                if targets.contains(where: { $0.url == url }) { continue }
                targets.append(
                    DownloadTarget(
                        url: url, isNamedByClient: false, showsToken: link.showsToken,
                        federatedDomain: link.federation.domain(of: profile)))
            } catch {
                failure = failure ?? error
            }
        }
        guard var first = targets.first else { throw failure ?? .invalid("the origin has no URL") }
        first.others = Array(targets.dropFirst())
        return first
    }

    /// Whether the URL may be at a private address: where the link that was asked is, if that may, or under an `allow`
    /// entry of an origin that may. So no link is led into the network by another's leave.
    /// - Parameter start: where the first request went.
    package func mayBePrivate(_ url: WebURL, from start: WebURL) -> Bool {
        let isOwn = url.authority == start.authority
        if isOwn, links.contains(where: { $0.allowsPrivateAddresses && $0.template.authority == url.authority }) {
            return true
        }
        guard allowsPrivateAddresses else { return false }
        do { try allow.check(url) } catch { return false }
        return true
    }

    /// Whether the user's token is for the scheme, host and port of a URL.
    package func showsToken(to url: WebURL) -> Bool {
        links.contains { $0.showsToken && $0.template.authority == url.authority }
    }

    /// See ``URLTemplate/takenApart(_:)``.
    package func takenApart(_ url: String) -> WebURL? {
        for link in links {
            if let known = link.template.takenApart(url) { return known }
        }
        return nil
    }

    // MARK: The token endpoint

    /// Secrets go there, so that it is https (RFC 6749 section 3.2), but for an origin that may be at private
    /// addresses, which are the operator's own network.
    private static func validateEndpoint(of origin: Origin) throws(OriginError) {
        guard let endpoint = origin.tokenEndpoint else { return }
        let url = try webURL(endpoint.url, "token.endpoint")
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

/// An origin's URL with placeholders: `{profile}`, `{user}`, `{size}`, `{profile_sha256}`, `{profile_md5}`.
package struct URLTemplate: Sendable {
    /// Scheme, host and port of every URL that it makes.
    package let authority: String
    /// The template with something harmless for every placeholder.
    package let sample: WebURL
    private let pieces: [Piece]
    /// Whether it is written in the one form of a ``WebURL``, as nearly all are: then so is what is made of it.
    private let isNormal: Bool

    private enum Piece: Sendable {
        case text(Substring)
        case placeholder(Placeholder)
    }

    private enum Placeholder: String, CaseIterable, Sendable {
        case profile, user, size
        case hashedSHA256 = "profile_sha256"
        case hashedMD5 = "profile_md5"
    }

    /// - Throws: a sentence that says what is wrong with the template.
    package init(_ template: String) throws(OriginError) {
        var pieces: [Piece] = []
        var rest = template[...]
        while let open = rest.firstIndex(of: "{") {
            let name = rest[rest.index(after: open)...].prefix { $0 != "}" }
            guard name.endIndex < rest.endIndex else { throw flaw("a { without the } that ends a placeholder") }
            guard let placeholder = Placeholder(rawValue: String(name)) else { throw Self.unknownPlaceholder(name) }
            // A shell's habit: the dollar sign would be sent. Who wants one can write it as no shell would.
            guard rest[..<open].last != "$" else {
                throw flaw("write {\(name)} instead of ${\(name)}, and %24 where a dollar sign is meant")
            }
            pieces += [.text(rest[..<open]), .placeholder(placeholder)]
            rest = rest[rest.index(after: name.endIndex)...]
        }
        pieces.append(.text(rest))
        for case .text(let text) in pieces where text.contains("}") {
            throw flaw("a } without the { that a placeholder begins with")
        }
        try Self.checkAuthority(pieces)
        let text = pieces.reduce(into: "") { text, piece in
            if case .text(let part) = piece { text += part } else { text += "x" }
        }
        guard !Self.hasDotSegment(text) else {
            throw flaw("a path segment is \".\" or \"..\"; write the path that it leads to")
        }
        guard !text.contains("#") else { throw flaw("a fragment (#) is never sent; leave it out") }
        do throws(CacheFailure) {
            sample = try WebURL(text)
        } catch {
            throw flaw(error.description)
        }
        authority = sample.authority
        isNormal = sample.string == text
        self.pieces = pieces
    }

    private static func unknownPlaceholder(_ name: Substring) -> OriginError {
        let known = Placeholder.allCases.map(\.rawValue)
        let meant = closestWord(to: name.lowercased(), among: known).map { "did you mean {\($0)}?" }
        let all = known.map { "{\($0)}" }.joined(separator: ", ")
        return flaw("{\(name)} is no placeholder; \(meant ?? "these are: \(all)")")
    }

    /// Whether both make the same URL of whatever they are filled in with.
    func makesSameURLs(as other: URLTemplate) -> Bool { normalized == other.normalized }

    /// In the one form of a URL, with a word for each placeholder that nobody writes instead.
    private var normalized: String {
        let text = pieces.reduce(into: "") { text, piece in
            switch piece {
            case .text(let part): text += part
            case .placeholder(let placeholder): text += "placeholder-\(placeholder.rawValue)"
            }
        }
        // One that is too long is so for all.
        do { return try WebURL(text).string } catch { return text }
    }

    /// Whether it makes different URLs for different profiles.
    package var tellsPeopleApart: Bool {
        pieces.contains { piece in
            if case .placeholder(let placeholder) = piece { ![.size, .user].contains(placeholder) } else { false }
        }
    }

    /// The URL for one image, in the one form of a ``WebURL``. Values are percent-encoded whole, so that they cannot
    /// end the part of the URL that they stand in; a path segment that they make `.` or `..` is refused, since it would
    /// end up as another path.
    package func filled(profile: OpaqueID, user: OpaqueID, size: UInt16) throws(CacheFailure) -> String {
        var bytes: [UInt8] = []
        for piece in pieces {
            switch piece {
            case .text(let part): bytes += part.utf8
            case .placeholder(.profile): profile.withBytes { bytes.appendEncoded($0) }
            case .placeholder(.user): user.withBytes { bytes.appendEncoded($0) }
            case .placeholder(.size): bytes += String(size).utf8
            case .placeholder(.hashedSHA256): bytes += try hash(profile, EVP_sha256(), "SHA-256").utf8
            case .placeholder(.hashedMD5): bytes += try hash(profile, EVP_md5(), "MD5").utf8
            }
        }
        let text = String(decoding: bytes, as: UTF8.self)
        guard !Self.hasDotSegment(text) else {
            throw .invalid("these ids make a path segment \".\" or \"..\" of the origin's URL")
        }
        // Percent-encoding is part of that form. Taking the URL apart to see that would take 4 µs of each miss.
        if isNormal, bytes.count <= WebURL.longest { return text }
        do {
            return try WebURL(text).string
        } catch {
            throw .invalid("the origin's URL with these ids filled in: \(error.description)")
        }
    }

    /// A URL in the one form, taken apart, if it is one that the template may have made: where it goes is known then,
    /// and only what follows need be looked at. That takes a tenth of the time.
    package func takenApart(_ url: String) -> WebURL? {
        let rest = url.utf8.dropFirst(authority.utf8.count)
        // Without the slash, host or port would go on.
        guard rest.first == UInt8(ascii: "/"), url.hasPrefix(authority) else { return nil }
        return WebURL(at: sample, url[rest.startIndex...])
    }

    /// Scheme, host and port are the origin's own choice, and no id's.
    private static func checkAuthority(_ pieces: [Piece]) throws(OriginError) {
        guard case .text(let start)? = pieces.first, let scheme = start.firstRange(of: "://") else {
            throw flaw("a URL begins with http:// or https:// and a host, without placeholders")
        }
        let rest = start[scheme.upperBound...]
        guard let end = rest.firstIndex(where: { "/?#".contains($0) }) ?? (pieces.count == 1 ? rest.endIndex : nil)
        else {
            throw flaw("scheme, host and port must not hold a placeholder")
        }
        guard end > rest.startIndex else { throw flaw("the URL has no host") }
    }

    /// Whether a segment of the path is `.` or `..`, be it percent-encoded.
    private static func hasDotSegment(_ url: String) -> Bool {
        url.utf8.prefix { $0 != UInt8(ascii: "?") }.split(separator: UInt8(ascii: "/")).contains { segment in
            // None of its spellings is longer than `%2e%2e`, and nearly every segment is, or begins otherwise.
            guard segment.count <= 6, segment.first == UInt8(ascii: ".") || segment.first == UInt8(ascii: "%") else {
                return false
            }
            let plain = String(decoding: segment, as: UTF8.self).lowercased().replacing("%2e", with: ".")
            return plain == "." || plain == ".."
        }
    }

    /// The lower-case hexadecimal digest of an id as a mail address, which is how Gravatar and Libravatar derive theirs.
    private func hash(_ id: OpaqueID, _ algorithm: OpaquePointer?, _ name: String) throws(CacheFailure) -> String {
        let bytes = id.asMailAddress
        var digest = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var count: UInt32 = 0
        guard EVP_Digest(bytes, bytes.count, &digest, &count, algorithm, nil) == 1 else {
            throw .invalid("OpenSSL offers no \(name) here, which the origin's URL asks for")
        }
        return Hex.text(digest.prefix(Int(count)))
    }
}

extension OpaqueID {
    /// Without blanks around it and in ASCII lower case.
    var asMailAddress: [UInt8] {
        let blanks: Set<UInt8> = [0x20, 0x09, 0x0A, 0x0B, 0x0C, 0x0D]
        var bytes = withBytes { $0.drop { blanks.contains($0) }.map(\.asciiLowercased) }
        while let last = bytes.last, blanks.contains(last) { bytes.removeLast() }
        return bytes
    }
}

private func flaw(_ reason: String) -> OriginError { OriginError(key: "url", reason: reason) }

extension UInt8 {
    package var asciiLowercased: UInt8 { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(self) ? self | 0x20 : self }
}
