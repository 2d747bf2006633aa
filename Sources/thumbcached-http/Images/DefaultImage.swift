/// The response for a profile without an image.
enum DefaultImage: Equatable, Sendable {
    /// 404.
    case notFound
    /// A silhouette.
    case person
    /// Nothing visible.
    case blank
    /// One or two letters.
    case initials(String)
    /// A redirect to a URL of the setting `images.default-urls`.
    case url(String)

    /// The words of the setting `images.default`, and of the parameter `d`.
    enum Word: String, Sendable, CaseIterable {
        case notFound = "404"
        case person = "mp"
        case blank, initials
    }

    /// - Parameters:
    ///   - usual: for a missing or unknown `d`, and for a URL that is not allowed.
    ///   - allowed: the prefixes of valid URLs.
    init(_ query: ImageQuery, usual: Word, allowed: [URLPrefix]) {
        let text = query.defaultImage
        if allowed.contains(where: { $0.covers(text) }) {
            self = .url(text)
            return
        }
        // Older names of the silhouette.
        let word = ["mm", "mystery"].contains(text) ? Word.person : Word(rawValue: text) ?? usual
        switch word {
        case .notFound: self = .notFound
        case .person: self = .person
        case .blank: self = .blank
        case .initials:
            let letters = Initials.letters(initials: query.initials, name: query.name)
            self = letters.isEmpty ? .person : .initials(letters)
        }
    }
}

/// An element of the setting `images.default-urls`: a scheme, a host, and the beginning of a path.
///
/// The comparison is literal, so a client cannot write the host or the path in another way than the setting has it.
struct URLPrefix: Equatable, Sendable {
    let text: String

    /// Returns nil unless the text is `http://` or `https://`, a host and a path that ends with a slash.
    init?(_ text: String) {
        let scheme = ["https://", "http://"].first { text.hasPrefix($0) }
        guard let scheme, text.hasSuffix("/"), Self.isPlain(text) else { return nil }
        let rest = text.dropFirst(scheme.count)
        guard let slash = rest.firstIndex(of: "/"), slash != rest.startIndex, !rest[..<slash].contains("@"),
            !rest.contains("?"), !Self.hasDotSegment(rest)
        else { return nil }
        self.text = text
    }

    func covers(_ url: String) -> Bool {
        guard url.hasPrefix(text), url.utf8.count <= 2_048, Self.isPlain(url) else { return false }
        let path = url.dropFirst(text.count).prefix { $0 != "?" && $0 != "#" }
        return !Self.hasDotSegment(path)
    }

    /// Whether the text consists of characters of a URL, so that it is safe in a header field.
    private static func isPlain(_ text: String) -> Bool {
        text.utf8.allSatisfy { (0x21...0x7e).contains($0) && !"\"<>\\^`{|}".utf8.contains($0) }
    }

    /// Whether a segment is `.` or `..`, or an escape could hide one.
    private static func hasDotSegment(_ path: Substring) -> Bool {
        let path = path.lowercased()
        if ["%2e", "%2f", "%5c"].contains(where: { path.contains($0) }) { return true }
        return path.split(separator: "/").contains { segment in
            let name = segment.prefix { $0 != ";" }
            return name == "." || name == ".."
        }
    }
}
