import NIOCore
import ThumbcacheProtocol

/// A picture, and what the daemon says of it.
public struct ThumbcacheImage: Sendable, Hashable {
    /// The file: PNG, JPEG, GIF, WebP or AVIF. Shares its storage with the reply it came in.
    public let bytes: ByteBuffer
    /// What the daemon says of it.
    public let status: ImageStatus
}

/// What the daemon holds, without the picture.
public struct ImageStatus: Sendable, Hashable {
    /// Whether an image may be served without asking its origin.
    public enum State: String, Sendable, Hashable { case fresh, stale }

    /// Where it came from. Unknown to this library: nil. A fallback is the operator's picture, served where nobody has
    /// one of the profile.
    public enum Source: String, Sendable, Hashable { case memory, disk, origin, revalidated, put, fallback }

    /// SHA-256 of the bytes, in lower-case hexadecimal.
    public let digest: String
    /// Media type, such as `image/png`.
    public let type: String
    /// Bytes.
    public let length: Int
    /// Pixels.
    public let width: Int
    /// Pixels.
    public let height: Int
    /// Since it was downloaded, revalidated or put.
    public let age: Duration
    /// Until it is stale; not positive where it is. nil where that never comes.
    public let timeToLive: Duration?
    /// Whether the daemon would serve it without asking.
    public let state: State
    /// Where it came from.
    public let source: Source?
    /// Of the user's cache. It grows with every log-in, log-out and purge.
    public let epoch: Int
    /// The digest of the picture that the daemon made this one of, in another size; nil for one that is as it came.
    public let rendered: String?
}

/// What became of a GET that named a digest.
public enum ImageLookup: Sendable, Hashable {
    /// The current image has that digest.
    case unchanged
    /// Another.
    case image(ThumbcacheImage)
    /// There is none.
    case none
}

extension ImageStatus {
    init(_ map: Value) throws(ThumbcacheError) {
        var reader = ReplyReader(map)
        try self.init(&reader)
    }

    init(_ reader: inout ReplyReader) throws(ThumbcacheError) {
        digest = try reader.text(MetaKey.digest.rawValue)
        type = try reader.text(MetaKey.type.rawValue)
        length = try reader.number(MetaKey.length.rawValue)
        width = try reader.number(MetaKey.width.rawValue)
        height = try reader.number(MetaKey.height.rawValue)
        age = .seconds(try reader.number(MetaKey.age.rawValue))
        timeToLive = try reader.optionalNumber(MetaKey.ttl.rawValue).map { .seconds($0) }
        // A state that is not known is not trusted.
        state = State(rawValue: try reader.text(MetaKey.state.rawValue)) ?? .stale
        source = Source(rawValue: try reader.text(MetaKey.source.rawValue))
        epoch = try reader.number(MetaKey.epoch.rawValue)
        rendered = reader.optionalText(MetaKey.rendered.rawValue)
    }
}

extension ThumbcacheImage {
    init(_ map: Value) throws(ThumbcacheError) {
        var reader = ReplyReader(map)
        bytes = try reader.bytes(MetaKey.image.rawValue)
        status = try ImageStatus(&reader)
    }
}
