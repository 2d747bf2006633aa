import LinuxSupport

/// The field If-None-Match, whose entity tags are digests of images (RFC 9110, section 13.1.2).
enum EntityTags: Equatable, Sendable {
    /// The field is missing, or names no image of this program.
    case none
    /// `*`
    case any
    /// At least one digest, in the order of the field.
    case digests([String])

    /// Digests that are compared; further ones are ignored.
    static let most = 16

    /// - Parameter fields: all fields of the name.
    init(_ fields: [String]) {
        let tags = fields.flatMap { $0.split(separator: ",") }.map { $0.drop(while: Self.isBlank) }
        if tags.contains(where: { $0.prefix { !Self.isBlank($0) } == "*" }) {
            self = .any
            return
        }
        let digests = tags.compactMap(Self.digest).prefix(Self.most)
        self = digests.isEmpty ? .none : .digests(Array(digests))
    }

    /// The entity tag of an image.
    static func tag(_ digest: String) -> String { "\"\(digest)\"" }

    /// Whether the client has the image with this digest.
    func contains(_ digest: String) -> Bool {
        switch self {
        case .none: false
        case .any: true
        case .digests(let digests): digests.contains(digest)
        }
    }

    /// A digest for IFNOT; nil if the client names none.
    var first: String? {
        if case .digests(let digests) = self { digests.first } else { nil }
    }

    /// The comparison is weak, so `W/` is ignored.
    private static func digest(_ tag: Substring) -> String? {
        var text = tag
        while let last = text.last, isBlank(last) { text.removeLast() }
        if text.hasPrefix("W/") { text = text.dropFirst(2) }
        guard text.utf8.count == 66, text.hasPrefix("\""), text.hasSuffix("\"") else { return nil }
        let digest = text.dropFirst().dropLast()
        return isDigest(digest) ? String(digest) : nil
    }

    static func isDigest(_ text: some StringProtocol) -> Bool { text.utf8.count == 64 && Hex.isLowerCase(text.utf8) }

    private static func isBlank(_ character: Character) -> Bool { character == " " || character == "\t" }
}
