import CCurl
import ThumbnailCache

/// An absolute http or https URL in one form: equal URLs are equal strings.
///
/// libcurl's own parser takes it apart, so that what is judged is what will be connected to. Scheme and host are in
/// lower case, numbers that stand for IPv4 addresses are dotted decimal, the default port, the fragment and the dot of
/// a fully qualified host are gone, dot segments are resolved (also those written with %2E), and percent-encoding is as
/// RFC 3986 section 6.2.2 would have it: upper-case digits, encoded what must be and nothing else.
package struct WebURL: Hashable, Sendable {
    /// Bytes that a URL may have.
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

    /// - Parameter base: what a relative reference is relative to; nil where the text must be absolute.
    /// - Throws: `invalid` for what is no such URL; `denied` for one made to be mistaken or to lead out of the web.
    package init(_ text: String, relativeTo base: WebURL? = nil) throws(CacheFailure) {
        guard text.utf8.count <= Self.longest else { throw Self.tooLong }
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7F }) else {
            throw .invalid("a URL must not hold blanks or control characters")
        }
        // Some parsers read it as a slash and see another host than others do.
        guard !text.utf8.contains(UInt8(ascii: "\\")) else { throw .denied("a URL must not hold a backslash") }
        let parts = try CurlURL(text, base: base?.string)

        guard let scheme = parts.get(CURLUPART_SCHEME).flatMap({ Scheme(rawValue: $0.lowercased()) }) else {
            throw .denied("only http and https URLs are fetched")
        }
        guard parts.get(CURLUPART_USER) == nil, parts.get(CURLUPART_PASSWORD) == nil else {
            throw .denied("a URL must not hold a user name or a password")
        }
        guard let port = parts.get(CURLUPART_PORT, CURLU_DEFAULT_PORT).flatMap({ UInt16($0) }), port > 0 else {
            throw .invalid("the port of a URL is a number from 1 to 65535")
        }
        guard parts.get(CURLUPART_ZONEID) == nil else {
            throw .invalid("an IPv6 address in a URL must not name a zone")
        }
        self.scheme = scheme
        self.port = port
        host = try Self.normalized(host: parts.get(CURLUPART_HOST) ?? "")
        path = try removingDotSegments(
            normalizedEncoding(of: parts.get(CURLUPART_PATH) ?? "/", keeping: Characters.path))
        let query = try normalizedEncoding(of: parts.get(CURLUPART_QUERY) ?? "", keeping: Characters.query)
        self.query = query.isEmpty ? nil : query
        guard string.utf8.count <= Self.longest else { throw Self.tooLong }
    }

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

    private static let tooLong = CacheFailure.invalid("a URL is at most \(longest) bytes")

    private static func normalized(host: String) throws(CacheFailure) -> String {
        var host = host.lowercased()
        if host.hasPrefix("[") {
            // In the one spelling of RFC 5952.
            guard host.hasSuffix("]"), let address = IPAddress(String(host.dropFirst().dropLast())) else {
                throw .invalid("the host of a URL is no IPv6 address though it is in brackets")
            }
            return "[\(address)]"
        }
        if host.hasSuffix(".") { host.removeLast() }
        guard !host.isEmpty, !host.hasPrefix("."), !host.hasSuffix("."), !host.contains("..") else {
            throw .invalid("the host of a URL is missing, or a label of it is")
        }
        guard host.utf8.allSatisfy({ Characters.host.contains($0) }) else {
            throw .invalid(
                "the host of a URL is letters, digits, dots, hyphens and underscores (other scripts in their xn-- form)"
            )
        }
        // libcurl has turned other spellings of an IPv4 address into dotted decimal; `0x7f.1.` without its dot is one.
        guard IPAddress(host) != nil || !Self.isNumber(host.split(separator: ".").last ?? "") else {
            throw .invalid("a host whose last label is a number is an IPv4 address in dotted decimal")
        }
        return host
    }

    private static func isNumber(_ label: Substring) -> Bool {
        label.allSatisfy(\.isNumber) || label.hasPrefix("0x") && label.dropFirst(2).allSatisfy(\.isHexDigit)
    }
}

/// libcurl's parser, for as long as its answer is taken out.
private final class CurlURL {
    private let handle: OpaquePointer

    init(_ text: String, base: String?) throws(CacheFailure) {
        guard let handle = curl_url() else { throw .invalid("out of memory while taking a URL apart") }
        self.handle = handle
        // CURLU_PATH_AS_IS: dot segments are resolved by us, after the percent-encoded ones have become visible.
        let flags = UInt32(CURLU_PATH_AS_IS) | UInt32(CURLU_NON_SUPPORT_SCHEME)
        if let base {
            guard curl_url_set(handle, CURLUPART_URL, base, flags) == CURLUE_OK else {
                throw .invalid("the URL that another is relative to is none")
            }
        }
        let code = curl_url_set(handle, CURLUPART_URL, text, flags)
        guard code != CURLUE_BAD_FILE_URL else { throw .denied("only http and https URLs are fetched") }
        guard code == CURLUE_OK else {
            throw .invalid("not an absolute http or https URL (\(String(cString: curl_url_strerror(code))))")
        }
    }

    deinit { curl_url_cleanup(handle) }

    /// nil for a part that is not there.
    func get(_ part: CURLUPart, _ flags: Int32 = 0) -> String? {
        var text: UnsafeMutablePointer<CChar>?
        guard curl_url_get(handle, part, &text, UInt32(flags)) == CURLUE_OK, let text else { return nil }
        defer { curl_free(text) }
        return String(cString: text)
    }
}
