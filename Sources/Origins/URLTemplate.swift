import COpenSSL
import CacheCore
import LinuxSupport

/// An origin's URL (http, https or LDAP) with placeholders: `{profile}`, `{user}`, `{size}`, `{profile_sha256}`,
/// `{profile_md5}`.
package struct URLTemplate: Sendable {
    /// Scheme, host and port of the URLs that it makes.
    package let authority: String
    /// The template with `x` for each placeholder.
    package let sample: WebURL
    private let pieces: [Piece]
    /// Whether it is normalized as a ``WebURL`` is; then its URLs are, too.
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

    package init(_ template: String) throws(OriginError) {
        var pieces: [Piece] = []
        var rest = template[...]
        while let open = rest.firstIndex(of: "{") {
            let name = rest[rest.index(after: open)...].prefix { $0 != "}" }
            guard name.endIndex < rest.endIndex else { throw flaw("a { without a } after the placeholder") }
            guard let placeholder = Placeholder(rawValue: String(name)) else { throw Self.unknownPlaceholder(name) }
            // Probably meant as in a shell; the dollar sign would be sent.
            guard rest[..<open].last != "$" else {
                throw flaw("write {\(name)} instead of ${\(name)}, or %24 for a dollar sign")
            }
            pieces += [.text(rest[..<open]), .placeholder(placeholder)]
            rest = rest[rest.index(after: name.endIndex)...]
        }
        pieces.append(.text(rest))
        for case .text(let text) in pieces where text.contains("}") {
            throw flaw("a } without a { before the placeholder")
        }
        try Self.checkAuthority(pieces)
        let text = pieces.reduce(into: "") { text, piece in
            if case .text(let part) = piece { text += part } else { text += "x" }
        }
        guard !Self.hasDotSegment(text) else {
            throw flaw("a path segment is \".\" or \"..\"; write the resolved path")
        }
        guard !text.contains("#") else { throw flaw("a fragment (#) is never sent; remove it") }
        do throws(CacheFailure) {
            sample = try WebURL(text, orDirectory: true)
        } catch {
            throw flaw(error.description)
        }
        authority = sample.authority
        isNormal = sample.string == text
        self.pieces = pieces
        if sample.scheme.isDirectory { try Self.checkDirectory(template) }
    }

    /// RFC 4516 section 2, complete and without extensions.
    private static func checkDirectory(_ template: String) throws(OriginError) {
        let parts = template.split(separator: "?", omittingEmptySubsequences: false)
        guard parts.count == 4 else {
            throw flaw(
                "an LDAP URL must have a base, an attribute, a scope and a filter, as in "
                    + "ldaps://host/dc=example,dc=org?jpegPhoto?sub?(mail={profile})")
        }
        guard !parts[0].contains("{") else { throw flaw("only the filter of an LDAP URL may contain placeholders") }
        guard ["jpegPhoto", "thumbnailPhoto"].contains(parts[1]) else {
            throw flaw("the attribute of an LDAP URL is \"\(parts[1])\"; it must be jpegPhoto or thumbnailPhoto")
        }
        guard ["base", "one", "sub"].contains(parts[2]) else {
            throw flaw("the scope of an LDAP URL is \"\(parts[2])\"; it must be base, one or sub")
        }
        guard parts[3].first == "(", parts[3].last == ")" else {
            throw flaw("the filter of an LDAP URL must be in parentheses, as in (mail={profile})")
        }
    }

    private static func unknownPlaceholder(_ name: Substring) -> OriginError {
        let known = Placeholder.allCases.map(\.rawValue)
        let meant = closestWord(to: name.lowercased(), among: known).map { "did you mean {\($0)}?" }
        let all = known.map { "{\($0)}" }.joined(separator: ", ")
        return flaw("{\(name)} is not a placeholder; \(meant ?? "valid: \(all)")")
    }

    func makesSameURLs(as other: URLTemplate) -> Bool { normalized == other.normalized }

    /// Normalized URL in which each placeholder is a unique sentinel.
    private var normalized: String {
        let text = pieces.reduce(into: "") { text, piece in
            switch piece {
            case .text(let part): text += part
            case .placeholder(let placeholder): text += "placeholder-\(placeholder.rawValue)"
            }
        }
        // The sentinels can make the URL too long; then it is compared as it is.
        do { return try WebURL(text, orDirectory: true).string } catch { return text }
    }

    /// Whether it makes different URLs for different profiles.
    package var distinguishesProfiles: Bool {
        pieces.contains { piece in
            if case .placeholder(let placeholder) = piece { ![.size, .user].contains(placeholder) } else { false }
        }
    }

    /// The normalized URL for one image. Values are percent-encoded completely, so that they cannot end a part of the
    /// URL. A path segment that becomes `.` or `..` is rejected, because it would change the path.
    package func filled(profile: OpaqueID, user: OpaqueID, size: UInt16) throws(CacheFailure) -> String {
        var bytes: [UInt8] = []
        for piece in pieces {
            switch piece {
            case .text(let part): bytes += part.utf8
            case .placeholder(.profile): append(profile, to: &bytes)
            case .placeholder(.user): append(user, to: &bytes)
            case .placeholder(.size): bytes += String(size).utf8
            case .placeholder(.hashedSHA256): bytes += try hash(profile, EVP_sha256(), "SHA-256").utf8
            case .placeholder(.hashedMD5): bytes += try hash(profile, EVP_md5(), "MD5").utf8
            }
        }
        let text = String(decoding: bytes, as: UTF8.self)
        guard !Self.hasDotSegment(text) else {
            throw .invalid("with this profile or user, a path segment of the origin's URL is \".\" or \"..\"")
        }
        // Encoded values keep a normalized URL normalized. Parsing it again would cost each miss 4 µs.
        if isNormal, bytes.count <= WebURL.longest { return text }
        do {
            return try WebURL(text, orDirectory: sample.scheme.isDirectory).string
        } catch {
            throw .invalid("the origin's URL for this profile: \(error.description)")
        }
    }

    private func append(_ id: OpaqueID, to bytes: inout [UInt8]) {
        id.withBytes { value in
            if sample.scheme.isDirectory {
                bytes.appendEncoded(Self.escapedForFilter(value))
            } else {
                bytes.appendEncoded(value)
            }
        }
    }

    /// RFC 4515 section 3. Control characters and non-ASCII bytes are also escaped, since an id need not be UTF-8.
    private static func escapedForFilter(_ value: some Sequence<UInt8>) -> [UInt8] {
        value.flatMap { byte -> [UInt8] in
            guard byte < 0x20 || byte >= 0x7F || "()*\\".utf8.contains(byte) else { return [byte] }
            return Array("\\\(Hex.text([byte]))".utf8)
        }
    }

    /// Parses a normalized URL that the template may have made; nil for other URLs. Scheme, host and port are known, so
    /// this takes a tenth of the time of the general parser.
    package func parse(_ url: String) -> WebURL? {
        let rest = url.utf8.dropFirst(authority.utf8.count)
        // Without the slash, the host or port would be longer.
        guard rest.first == UInt8(ascii: "/"), url.hasPrefix(authority) else { return nil }
        return WebURL(at: sample, url[rest.startIndex...])
    }

    /// Rejects placeholders in scheme, host and port, which only the operator chooses.
    private static func checkAuthority(_ pieces: [Piece]) throws(OriginError) {
        guard case .text(let start)? = pieces.first, let scheme = start.firstRange(of: "://") else {
            throw flaw("a URL must begin with http://, https://, ldaps:// or ldap:// and a host without placeholders")
        }
        let rest = start[scheme.upperBound...]
        guard let end = rest.firstIndex(where: { "/?#".contains($0) }) ?? (pieces.count == 1 ? rest.endIndex : nil)
        else {
            throw flaw("scheme, host and port must not contain a placeholder")
        }
        guard end > rest.startIndex else { throw flaw("the URL has no host") }
    }

    /// Whether a path segment is `.` or `..`, possibly percent-encoded.
    private static func hasDotSegment(_ url: String) -> Bool {
        url.utf8.prefix { $0 != UInt8(ascii: "?") }.split(separator: UInt8(ascii: "/")).contains { segment in
            // The longest spelling is `%2e%2e`; this skips nearly all segments.
            guard segment.count <= 6, segment.first == UInt8(ascii: ".") || segment.first == UInt8(ascii: "%") else {
                return false
            }
            let plain = String(decoding: segment, as: UTF8.self).lowercased().replacing("%2e", with: ".")
            return plain == "." || plain == ".."
        }
    }

    /// The lower-case hexadecimal digest of an id as a mail address, as Gravatar and Libravatar use it.
    private func hash(_ id: OpaqueID, _ algorithm: OpaquePointer?, _ name: String) throws(CacheFailure) -> String {
        let bytes = id.asMailAddress
        var digest = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var count: UInt32 = 0
        guard EVP_Digest(bytes, bytes.count, &digest, &count, algorithm, nil) == 1 else {
            throw .invalid("OpenSSL does not provide \(name), which the origin's URL needs")
        }
        return Hex.text(digest.prefix(Int(count)))
    }
}

extension OpaqueID {
    /// In ASCII lower case, without surrounding blanks.
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
