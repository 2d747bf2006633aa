/// The URLs that clients may name, as an origin's `allow` entries have it (F57).
///
/// An entry covers a URL of its own scheme, host and port whose path begins with the entry's segments:
/// `https://cdn.example.org/a` covers `/a` and `/a/b` and not `/ab`. Both are compared as ``WebURL``s, in the one form
/// that is also fetched.
struct AllowList: Sendable {
    private let entries: [Entry]

    private struct Entry: Sendable {
        let authority: String
        let segments: [Substring]
    }

    /// - Throws: ``OriginError`` for the first entry that is no URL prefix.
    init(_ prefixes: [String]) throws(OriginError) {
        var entries: [Entry] = []
        for prefix in prefixes { entries.append(try Self.entry(prefix)) }
        self.entries = entries
    }

    /// - Throws: a sentence that says what would be allowed.
    func check(_ url: WebURL) throws(WebURL.Refusal) {
        // `%2F` is not a slash to us, but it is to many a server that it may reach, and so is `..;` to some.
        guard !url.segments.contains(where: Self.hidesDotSegment) else {
            throw .forbidden("the path of a URL must not hold an encoded dot segment")
        }
        guard covers(url) else {
            throw .forbidden(
                "\(url.authority) with this path is not under any of the origin's allow entries, of which there are "
                    + "\(entries.count): scheme, host, port and leading path segments must be those of one")
        }
    }

    /// Whether an entry is of the URL's scheme, host and port and its path begins like the entry's.
    private func covers(_ url: WebURL) -> Bool { entries.contains { Self.covers($0, url) } }

    /// Whether ``check(_:)`` lets the URL pass.
    func allows(_ url: WebURL) -> Bool {
        !url.segments.contains(where: Self.hidesDotSegment) && covers(url)
    }

    private static func covers(_ entry: Entry, _ url: WebURL) -> Bool {
        entry.authority == url.authority && url.segments.starts(with: entry.segments)
    }

    private static func entry(_ prefix: String) throws(OriginError) -> Entry {
        do {
            let url = try WebURL(prefix)
            guard url.query == nil, !prefix.contains("#"), !prefix.contains("?") else {
                throw OriginError(key: "allow", reason: "\"\(prefix)\": an entry has no query and no fragment")
            }
            var segments = url.segments
            // `/a/` is taken for `/a`: the empty segment after the last slash is nothing that a URL would have to begin
            // with.
            if segments.last == "" { segments.removeLast() }
            return Entry(authority: url.authority, segments: segments)
        } catch let refusal as WebURL.Refusal {
            throw OriginError(key: "allow", reason: "\"\(prefix)\": \(refusal.sentence)")
        } catch let error as OriginError {
            throw error
        } catch {
            throw OriginError(key: "allow", reason: "\"\(prefix)\": \(error)")
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
