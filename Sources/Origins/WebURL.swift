import CacheCore

/// An absolute http or https URL in one form: equal URLs are equal strings.
///
/// Scheme and host are in lower case, IPv4 addresses are dotted decimal, the default port, the fragment and the dot of
/// a fully qualified host are gone, dot segments are resolved (also those written with %2E), and percent-encoding is as
/// RFC 3986 section 6.2.2 would have it: upper-case digits, encoded what must be and nothing else.
///
/// What takes it apart is strict (``URLParts``), so that the daemon needs no libcurl. The fetcher has libcurl's own
/// parser do it again: what is connected to is what was judged.
package struct WebURL: Hashable, Sendable {
    /// Bytes that a URL may have, but for that of a redirect (``DownloadTarget/longestRedirect``).
    package static let longest = 2048

    package let scheme: Scheme
    /// Lower case; an IPv6 address is in brackets.
    package let host: String
    package let port: UInt16
    /// Begins with a slash.
    package let path: String
    package let query: String?

    package enum Scheme: String, Sendable {
        case http, https

        var defaultPort: UInt16 { self == .http ? 80 : 443 }
    }

    /// - Throws: `invalid` for what is no such URL; `denied` for one made to be mistaken or to lead out of the web.
    package init(_ text: String) throws(CacheFailure) {
        try Self.checkBytes(of: text)
        try self.init(URLParts(text))
    }

    /// The one form of a URL that was taken apart: by our own parser, or by libcurl's. Whatever was not looked at in
    /// the text as a whole (``checkBytes(of:)``) is looked at here.
    package init(_ parts: URLParts, longest: Int = Self.longest) throws(CacheFailure) {
        guard let scheme = Scheme(rawValue: parts.scheme.lowercased()) else { throw Self.notOfTheWeb }
        guard !parts.hasUser else { throw .denied("a URL must not hold a user name or a password") }
        let number = parts.port.map { UInt16($0) } ?? scheme.defaultPort
        guard let port = number, port > 0 else { throw .invalid("the port of a URL is a number from 1 to 65535") }
        guard !parts.hasZone else { throw .invalid("an IPv6 address in a URL must not name a zone") }
        self.scheme = scheme
        self.port = port
        host = try Self.normalized(host: parts.host)
        path = try removingDotSegments(normalizedEncoding(of: parts.path, keeping: Characters.path))
        let query = try normalizedEncoding(of: parts.query, keeping: Characters.query)
        self.query = query.isEmpty ? nil : query
        guard string.utf8.count <= longest else { throw Self.tooLong(longest) }
    }

    /// What no URL has, whoever takes it apart.
    package static func checkBytes(of text: String, longest: Int = Self.longest) throws(CacheFailure) {
        guard text.utf8.count <= longest else { throw tooLong(longest) }
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F }) else {
            throw .invalid("a URL must not hold blanks or control characters")
        }
        // Some parsers read it as a slash and see another host than others do.
        guard !text.utf8.contains(UInt8(ascii: "\\")) else { throw .denied("a URL must not hold a backslash") }
    }

    package static let notOfTheWeb = CacheFailure.denied("only http and https URLs are fetched")

    /// Another URL of the same scheme, host and port.
    /// - Parameter rest: its path and query, in the one form already; begins with a slash.
    package init(at base: WebURL, _ rest: Substring) {
        let mark = rest.utf8.firstIndex(of: UInt8(ascii: "?"))
        (scheme, host, port) = (base.scheme, base.host, base.port)
        path = String(rest[..<(mark ?? rest.endIndex)])
        query = mark.map { String(rest[rest.utf8.index(after: $0)...]) }
    }

    package var string: String { authority + path + (query.map { "?" + $0 } ?? "") }

    /// Scheme, host, and the port where it is not the scheme's own: where a request is sent.
    package var authority: String { "\(scheme.rawValue)://\(host)" + (port == scheme.defaultPort ? "" : ":\(port)") }

    /// The ``authority`` of a URL that is in the one form already, without taking it apart.
    package static func authority(ofNormalized text: String) -> String {
        // The third slash ends it.
        var slashes = 0
        let end = text.utf8.firstIndex { byte in
            if byte == UInt8(ascii: "/") { slashes += 1 }
            return slashes == 3
        }
        return end.map { String(text[..<$0]) } ?? text
    }

    /// The parts of the path between its slashes.
    package var segments: [Substring] { path.dropFirst().split(separator: "/", omittingEmptySubsequences: false) }

    /// The address that the host is written as, nil if it is a name.
    package var address: IPAddress? { IPAddress(host.hasPrefix("[") ? String(host.dropFirst().dropLast()) : host) }

    private static func tooLong(_ longest: Int) -> CacheFailure { .invalid("a URL is at most \(longest) bytes") }
    /// Bytes that the name of a host may have: no longer one is in DNS, and sentences name it.
    private static let longestHost = 255

    private static func normalized(host: String) throws(CacheFailure) -> String {
        // ASCII letters alone: in Unicode the sign of the kelvin has a plain k for its lower case.
        var host = String(decoding: host.utf8.map(\.asciiLowercased), as: UTF8.self)
        if host.hasPrefix("[") {
            // In the one spelling of RFC 5952.
            guard host.hasSuffix("]"), let address = IPAddress(String(host.dropFirst().dropLast())), case .v6 = address
            else {
                throw .invalid("the host of a URL is no IPv6 address though it is in brackets")
            }
            return "[\(address)]"
        }
        if host.hasSuffix(".") { host.removeLast() }
        guard host.utf8.count <= longestHost else {
            throw .invalid("the host of a URL is at most \(longestHost) bytes")
        }
        guard !host.isEmpty, !host.hasPrefix("."), !host.hasSuffix("."), !host.contains("..") else {
            throw .invalid("the host of a URL is missing, or a label of it is")
        }
        guard host.utf8.allSatisfy({ Characters.host.contains($0) }) else {
            throw .invalid(
                "the host of a URL is letters, digits, dots, hyphens and underscores (other scripts in their xn-- form)"
            )
        }
        // libcurl turns other spellings of an IPv4 address into dotted decimal; ours leaves them for this to refuse.
        guard IPAddress(host) != nil || !Self.isNumber(host.split(separator: ".").last ?? "") else {
            throw .invalid("a host whose last label is a number is an IPv4 address in dotted decimal")
        }
        return host
    }

    private static func isNumber(_ label: Substring) -> Bool {
        label.allSatisfy(\.isNumber) || label.hasPrefix("0x") && label.dropFirst(2).allSatisfy(\.isHexDigit)
    }
}
