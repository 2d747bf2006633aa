import CacheCore

/// The `allow` entries of an origin: the URLs that clients may name (F57).
///
/// An entry covers a URL with the same scheme, host and port whose path begins with the entry's segments:
/// `https://cdn.example.org/a` covers `/a` and `/a/b` but not `/ab`. Both are compared as normalized ``WebURL``.
package struct AllowList: Sendable {
    private let entries: [Entry]

    private struct Entry: Sendable {
        let authority: String
        let segments: [Substring]
    }

    package init(_ prefixes: [String]) throws(OriginError) {
        entries = try prefixes.map { prefix throws(OriginError) in
            let url: WebURL
            do throws(CacheFailure) {
                url = try WebURL(prefix)
                guard !prefix.contains("#"), !prefix.contains("?") else {
                    throw .invalid("an allow entry must not have a query or a fragment")
                }
            } catch {
                throw OriginError(key: "allow", reason: "\"\(prefix)\": \(error)")
            }
            // `/a/` means `/a`: the empty segment after the last slash is not part of the prefix.
            let segments = url.segments.last == "" ? url.segments.dropLast() : url.segments
            return Entry(authority: url.authority, segments: segments)
        }
    }

    /// - Throws: `denied` if no entry covers the URL.
    package func check(_ url: WebURL) throws(CacheFailure) {
        // Some servers decode `%2F` as a slash, and some treat `..;` as a dot segment.
        guard !url.segments.contains(where: Self.hidesDotSegment) else {
            throw .denied("the path of a URL must not contain an encoded dot segment")
        }
        guard entries.contains(where: { $0.authority == url.authority && url.segments.starts(with: $0.segments) })
        else {
            throw .denied(
                "\(url.authority) with this path is not covered by the origin's \(entries.count) allow entries; scheme, "
                    + "host, port and leading path segments must match one")
        }
    }

    /// Whether a decoded segment has `.` or `..` between slashes or backslashes, or before a semicolon.
    private static func hidesDotSegment(_ segment: Substring) -> Bool {
        var text = segment.replacing("%2F", with: "/").replacing("%5C", with: "/")
        text = text.replacing("%3B", with: ";")
        return text.split(separator: "/").contains { part in
            let name = part.prefix { $0 != ";" }
            return name == "." || name == ".."
        }
    }
}
