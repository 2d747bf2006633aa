import CacheCore

/// The URLs that clients may name, as an origin's `allow` entries have it (F57).
///
/// An entry covers a URL of its own scheme, host and port whose path begins with the entry's segments:
/// `https://cdn.example.org/a` covers `/a` and `/a/b` and not `/ab`. Both are compared in the one form of a ``WebURL``.
package struct AllowList: Sendable {
    private let entries: [Entry]

    private struct Entry: Sendable {
        let authority: String
        let segments: [Substring]
    }

    /// - Throws: ``OriginError`` for the first entry that is no URL prefix.
    package init(_ prefixes: [String]) throws(OriginError) {
        entries = try prefixes.map { prefix throws(OriginError) in
            let url: WebURL
            do throws(CacheFailure) {
                url = try WebURL(prefix)
                guard !prefix.contains("#"), !prefix.contains("?") else {
                    throw .invalid("an entry has no query and no fragment")
                }
            } catch {
                throw OriginError(key: "allow", reason: "\"\(prefix)\": \(error)")
            }
            // `/a/` is taken for `/a`: no URL has to begin with the empty segment after the last slash.
            let segments = url.segments.last == "" ? url.segments.dropLast() : url.segments
            return Entry(authority: url.authority, segments: segments)
        }
    }

    /// - Throws: a sentence that says what would be allowed.
    package func check(_ url: WebURL) throws(CacheFailure) {
        // `%2F` is not a slash to us, but it is to many a server that it may reach, and so is `..;` to some.
        guard !url.segments.contains(where: Self.hidesDotSegment) else {
            throw .denied("the path of a URL must not hold an encoded dot segment")
        }
        guard entries.contains(where: { $0.authority == url.authority && url.segments.starts(with: $0.segments) })
        else {
            throw .denied(
                "\(url.authority) with this path is not under any of the origin's allow entries, of which there are "
                    + "\(entries.count): scheme, host, port and leading path segments must be those of one")
        }
    }

    /// Whether a segment, once decoded, has a `.` or `..` between slashes, backslashes or before a semicolon.
    private static func hidesDotSegment(_ segment: Substring) -> Bool {
        var text = segment.replacing("%2F", with: "/").replacing("%5C", with: "/")
        text = text.replacing("%3B", with: ";")
        return text.split(separator: "/").contains { part in
            let name = part.prefix { $0 != ";" }
            return name == "." || name == ".."
        }
    }
}
