import CacheCore

/// The parts of an absolute URL, not normalized.
package struct URLParts {
    package var scheme: String
    package var hasUser: Bool
    package var host: String
    package var hasZone: Bool
    /// Digits; nil for the default port.
    package var port: String?
    package var path: String
    package var query: String

    package init(
        scheme: String, hasUser: Bool, host: String, hasZone: Bool, port: String?, path: String, query: String
    ) {
        (self.scheme, self.hasUser, self.host, self.hasZone) = (scheme, hasUser, host, hasZone)
        (self.port, self.path, self.query) = (port, path, query)
    }

    /// Parses a URL strictly by RFC 3986 section 3. Parsers interpret invalid URLs differently, and an interpretation
    /// may lead to another host. The text has passed ``WebURL/checkBytes(of:)``.
    init(_ text: String, orDirectory: Bool) throws(CacheFailure) {
        let text = text.utf8
        guard let colon = text.firstIndex(of: UInt8(ascii: ":")), text[colon...].starts(with: "://".utf8) else {
            throw Self.notAbsolute
        }
        scheme = Self.string(text[..<colon])
        guard Self.isScheme(text[..<colon]) else { throw Self.notAbsolute }
        // Checked first, because the scheme defines the meaning of the rest.
        _ = try WebURL.Scheme(scheme, orDirectory: orDirectory)
        var rest = text[colon...].dropFirst(3)
        rest = rest.prefix { $0 != UInt8(ascii: "#") }
        let authority = rest.prefix { $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "?") }
        rest = rest[authority.endIndex...]
        let written = rest.prefix { $0 != UInt8(ascii: "?") }
        path = written.isEmpty ? "/" : Self.string(written)
        query = Self.string(rest[written.endIndex...].dropFirst())
        hasUser = authority.contains(UInt8(ascii: "@"))

        let end: Substring.UTF8View.Index
        if authority.first == UInt8(ascii: "[") {
            guard let bracket = authority.firstIndex(of: UInt8(ascii: "]")) else {
                throw .invalid("missing ] after the IPv6 address of a URL")
            }
            end = authority.index(after: bracket)
        } else {
            end = authority.firstIndex(of: UInt8(ascii: ":")) ?? authority.endIndex
        }
        host = Self.string(authority[..<end])
        hasZone = host.hasPrefix("[") && host.contains("%")
        let port = authority[end...]
        guard hasUser || port.isEmpty || port.first == UInt8(ascii: ":") && port.dropFirst().allSatisfy(Self.isDigit)
        else { throw .invalid("the host of a URL may be followed only by a colon and a port from 1 to 65535") }
        // An empty port means the default port (section 3.2.3).
        self.port = port.count > 1 ? Self.string(port.dropFirst()) : nil
    }

    private static var notAbsolute: CacheFailure {
        .invalid("not an absolute http or https URL, as in https://host/path")
    }

    /// Section 3.1.
    private static func isScheme(_ text: Substring.UTF8View) -> Bool {
        func isLetter(_ byte: UInt8) -> Bool { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20) }
        guard let first = text.first, isLetter(first) else { return false }
        return text.allSatisfy { isLetter($0) || isDigit($0) || "+-.".utf8.contains($0) }
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

    private static func string(_ bytes: Substring.UTF8View) -> String { String(Substring(bytes)) }
}
