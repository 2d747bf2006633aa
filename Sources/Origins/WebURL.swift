import CacheCore

/// A normalized absolute http or https URL: equal URLs are equal strings. Templates of origins may also use LDAP.
///
/// Scheme and host are in lower case, IPv4 addresses in dotted decimal. The default port, the fragment and the final
/// dot of the host are removed. Dot segments are resolved, including those with %2E. Percent-encoding follows RFC 3986
/// section 6.2.2: upper-case digits, and only where needed.
///
/// The parser is strict (``URLParts``), and the daemon needs no libcurl. The fetcher parses again with libcurl, so that
/// the URL that was checked is the one that is connected to.
package struct WebURL: Hashable, Sendable {
    /// Maximum length in bytes, except for redirects (``DownloadTarget/longestRedirect``).
    package static let longest = 2048

    package let scheme: Scheme
    /// In lower case; an IPv6 address is in brackets.
    package let host: String
    package let port: UInt16
    /// Begins with a slash.
    package let path: String
    package let query: String?
    /// Scheme, host, and the port unless it is the default. Stored, because each download reads it several times.
    package let authority: String

    package enum Scheme: String, Sendable {
        case http, https, ldap, ldaps

        /// LDAP is for templates of origins, not for URLs of clients or redirects.
        package var isDirectory: Bool { self == .ldap || self == .ldaps }

        var defaultPort: UInt16 {
            switch self {
            case .http: 80
            case .https: 443
            case .ldap: 389
            case .ldaps: 636
            }
        }

        init(_ text: String, orDirectory: Bool) throws(CacheFailure) {
            guard let scheme = Self(rawValue: text.lowercased()), orDirectory || !scheme.isDirectory else {
                throw WebURL.notOfTheWeb
            }
            self = scheme
        }
    }

    /// - Parameter orDirectory: whether ldap and ldaps are also permitted.
    /// - Throws: `invalid` for a malformed URL; `denied` for another scheme, a password or a backslash.
    package init(_ text: String, orDirectory: Bool = false) throws(CacheFailure) {
        try Self.checkBytes(of: text)
        try self.init(URLParts(text, orDirectory: orDirectory), orDirectory: orDirectory)
    }

    /// Normalizes the parts of a URL, from ``URLParts`` or libcurl's parser. Its text has passed ``checkBytes(of:)``.
    package init(
        _ parts: URLParts, longest: Int = Self.longest, orDirectory: Bool = false
    ) throws(CacheFailure) {
        let scheme = try Scheme(parts.scheme, orDirectory: orDirectory)
        guard !parts.hasUser else { throw .denied("a URL must not contain a user name or a password") }
        let number = parts.port.map { UInt16($0) } ?? scheme.defaultPort
        guard let port = number, port > 0 else { throw .invalid("the port of a URL must be a number from 1 to 65535") }
        guard !parts.hasZone else { throw .invalid("an IPv6 address in a URL must not have a zone") }
        self.scheme = scheme
        self.port = port
        host = try Self.normalized(host: parts.host)
        path = try removingDotSegments(normalizedEncoding(of: parts.path, keeping: Characters.path))
        let query = try normalizedEncoding(of: parts.query, keeping: Characters.query)
        self.query = query.isEmpty ? nil : query
        authority = "\(scheme.rawValue)://\(host)" + (port == scheme.defaultPort ? "" : ":\(port)")
        guard string.utf8.count <= longest else { throw Self.tooLong(longest) }
    }

    /// Checks the length and the bytes of a URL before it is parsed.
    package static func checkBytes(of text: String, longest: Int = Self.longest) throws(CacheFailure) {
        guard text.utf8.count <= longest else { throw tooLong(longest) }
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F }) else {
            throw .invalid("a URL must not contain blanks or control characters")
        }
        // Some parsers treat it as a slash and see another host.
        guard !text.utf8.contains(UInt8(ascii: "\\")) else { throw .denied("a URL must not contain a backslash") }
    }

    package static let notOfTheWeb = CacheFailure.denied("the scheme of a URL must be http or https")

    /// A URL with the scheme, host and port of another.
    /// - Parameter rest: normalized path and query, beginning with a slash.
    package init(at base: WebURL, _ rest: Substring) {
        let mark = rest.utf8.firstIndex(of: UInt8(ascii: "?"))
        (scheme, host, port, authority) = (base.scheme, base.host, base.port, base.authority)
        path = String(rest[..<(mark ?? rest.endIndex)])
        query = mark.map { String(rest[rest.utf8.index(after: $0)...]) }
    }

    package var string: String { authority + path + (query.map { "?" + $0 } ?? "") }

    package var segments: [Substring] { path.dropFirst().split(separator: "/", omittingEmptySubsequences: false) }

    /// nil if the host is a name.
    package var address: IPAddress? { IPAddress(host.hasPrefix("[") ? String(host.dropFirst().dropLast()) : host) }

    private static func tooLong(_ longest: Int) -> CacheFailure { .invalid("a URL must have at most \(longest) bytes") }
    /// Maximum length of a host name in bytes, as in DNS. Error messages contain it.
    private static let longestHost = 255

    private static func normalized(host: String) throws(CacheFailure) -> String {
        // ASCII letters only: in Unicode, the lower case of the Kelvin sign is a plain k.
        var host = String(decoding: host.utf8.map(\.asciiLowercased), as: UTF8.self)
        if host.hasPrefix("[") {
            guard host.hasSuffix("]"), let address = IPAddress(String(host.dropFirst().dropLast())), case .v6 = address
            else {
                throw .invalid("the host of a URL in brackets must be an IPv6 address")
            }
            return "[\(address)]"
        }
        if host.hasSuffix(".") { host.removeLast() }
        guard host.utf8.count <= longestHost else {
            throw .invalid("the host of a URL must have at most \(longestHost) bytes")
        }
        guard !host.isEmpty, !host.hasPrefix("."), !host.hasSuffix("."), !host.contains("..") else {
            throw .invalid("the host of a URL is empty or has an empty label")
        }
        guard host.utf8.allSatisfy({ Characters.host.contains($0) }) else {
            throw .invalid(
                "the host of a URL must consist of letters, digits, dots, hyphens and underscores; "
                    + "write other scripts in their xn-- form"
            )
        }
        // libcurl converts other spellings of an IPv4 address; the strict parser rejects them here.
        guard IPAddress(host) != nil || !Self.isNumber(host.split(separator: ".").last ?? "") else {
            throw .invalid("a host whose last label is a number must be an IPv4 address in dotted decimal")
        }
        return host
    }

    private static func isNumber(_ label: Substring) -> Bool {
        label.allSatisfy(\.isNumber) || label.hasPrefix("0x") && label.dropFirst(2).allSatisfy(\.isHexDigit)
    }
}
