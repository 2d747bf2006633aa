/// The query of an image: the parameters of Gravatar and Libravatar, and those of a signed URL.
///
/// Unknown parameters are ignored, and so is `r` (`rating`): ratings are a matter of the origin. Of a parameter that is
/// repeated the first value counts; a repeated part of a signature is invalid.
struct ImageQuery: Equatable, Sendable {
    /// Pixels; nil if missing or not a number.
    var size: Int?
    /// The value of `d`; empty if missing.
    var defaultImage = ""
    /// Whether the default image is requested even if there is an image.
    var isForced = false
    var name = ""
    var initials = ""
    /// nil if missing or repeated.
    var expires: String?
    /// nil if missing or repeated.
    var signature: String?

    /// Names of parameters, with the short and long form of each.
    private enum Key: String {
        case size = "s"
        case defaultImage = "d"
        case forced = "f"
        case name, initials, expires, signature

        init?(_ name: String) {
            switch name {
            case "size": self = .size
            case "default": self = .defaultImage
            case "forcedefault": self = .forced
            default:
                guard let key = Key(rawValue: name) else { return nil }
                self = key
            }
        }
    }

    /// - Parameter text: after the question mark.
    /// - Returns: nil if a value that is used has an invalid escape.
    init?(_ text: some StringProtocol) {
        var values: [(key: Key, value: String)] = []
        for pair in Array(text.utf8).split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = parts.first, let key = Key(String(decoding: name, as: UTF8.self)) else { continue }
            guard let bytes = PercentDecoding.decode(parts.count == 2 ? parts[1] : [], plusIsSpace: true) else {
                return nil
            }
            values.append((key, String(decoding: bytes, as: UTF8.self)))
        }
        func first(_ key: Key) -> String? { values.first { $0.key == key }?.value }
        func only(_ key: Key) -> String? { values.count(where: { $0.key == key }) == 1 ? first(key) : nil }
        size = first(.size).flatMap(Self.number)
        defaultImage = first(.defaultImage) ?? ""
        isForced = first(.forced)?.lowercased() == "y"
        name = first(.name) ?? ""
        initials = first(.initials) ?? ""
        expires = only(.expires)
        signature = only(.signature)
    }

    /// Digits only; a larger number than any size counts as the largest.
    private static func number(_ text: String) -> Int? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int(text) ?? .max
    }
}
