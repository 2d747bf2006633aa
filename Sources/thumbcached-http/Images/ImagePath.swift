import LinuxSupport
import Thumbcache

/// The path of an image: `/avatar/HASH` or `/u/USER/avatar/HASH`, each with an optional extension.
struct ImagePath: Equatable, Sendable {
    enum Owner: Equatable, Sendable {
        /// The one user of the setting `images.user`.
        case site
        case user(ThumbcacheID)
    }

    let owner: Owner
    /// The hash in lower case, which is the profile's id in the daemon.
    let hash: String

    /// Extensions that clients append. They do not choose a format: Content-Type is that of the image.
    static let extensions: Set<String> = ["jpg", "jpeg", "png", "gif", "webp", "avif", "svg"]

    /// Parses a path without its query. Returns nil for any other path.
    ///
    /// The path is split before anything is decoded, and only the user is decoded, once. A user with a slash, a
    /// backslash or a control character, or one that is a dot segment, has no path: a proxy that decodes or normalizes
    /// the path would see another user than this program.
    init?(_ path: Substring) {
        // Splitting an array is several times faster than splitting the string's UTF-8 view.
        let bytes = Array(path.utf8)
        guard bytes.first == UInt8(ascii: "/"), bytes.allSatisfy({ (0x21...0x7e).contains($0) }) else { return nil }
        let segments = bytes.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        switch segments.count {
        case 2 where segments[0].elementsEqual("avatar".utf8): owner = .site
        case 4 where segments[0].elementsEqual("u".utf8) && segments[2].elementsEqual("avatar".utf8):
            guard let user = Self.user(segments[1]) else { return nil }
            owner = .user(user)
        default: return nil
        }
        guard let last = segments.last, let hash = Self.hash(last) else { return nil }
        self.hash = hash
    }

    private static func user(_ segment: ArraySlice<UInt8>) -> ThumbcacheID? {
        guard let bytes = PercentDecoding.decode(segment), (1...512).contains(bytes.count) else { return nil }
        let isPlain = bytes.allSatisfy { byte in
            byte >= 0x20 && byte != 0x7f && byte != UInt8(ascii: "/") && byte != UInt8(ascii: "\\")
        }
        let reserved: [[UInt8]] = [Array("*".utf8), Array(".".utf8), Array("..".utf8)]
        return isPlain && !reserved.contains(bytes) ? ThumbcacheID(bytes: bytes) : nil
    }

    /// MD5 has 32 digits, SHA-256 has 64.
    private static func hash(_ segment: ArraySlice<UInt8>) -> String? {
        let parts = segment.split(separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false)
        if parts.count == 2, !extensions.contains(String(decoding: parts[1], as: UTF8.self).lowercased()) {
            return nil
        }
        guard let digits = parts.first, digits.count == 32 || digits.count == 64,
            digits.allSatisfy({ Hex.value(of: $0) != nil })
        else { return nil }
        return String(decoding: digits, as: UTF8.self).lowercased()
    }
}
