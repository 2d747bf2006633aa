import NIOCore
import ThumbcacheProtocol

/// An image and its description.
public struct ThumbcacheImage: Sendable, Hashable {
    /// The file: PNG, JPEG, GIF, WebP or AVIF. Shares storage with the reply.
    public let bytes: ByteBuffer
    /// The description of the image.
    public let status: ImageStatus
}

/// The description of a cached image.
public struct ImageStatus: Sendable, Hashable {
    /// Whether an image may be served without a request to its origin.
    public enum State: String, Sendable, Hashable { case fresh, stale }

    /// The source of an image. `fallback` is the operator's image for profiles without one.
    public enum Source: String, Sendable, Hashable { case memory, disk, origin, revalidated, put, fallback }

    /// SHA-256 of the file, in lower-case hexadecimal.
    public let digest: String
    /// Media type, such as `image/png`.
    public let type: String
    /// The size of the file, in bytes.
    public let length: Int
    /// Pixels.
    public let width: Int
    /// Pixels.
    public let height: Int
    /// The time since the image was downloaded, revalidated or stored.
    public let age: Duration
    /// The time until the image is stale; zero or negative if it is stale, nil if it never becomes stale.
    public let timeToLive: Duration?
    /// Whether the image is fresh or stale.
    public let state: State
    /// The source; nil if this library does not know it.
    public let source: Source?
    /// The epoch of the user's cache; see ``Receipt/epoch``.
    public let epoch: Int
    /// The digest of the source image that this one was resized from; nil if it was not resized.
    public let rendered: String?
}

/// The result of a GET with the digest of the caller's image.
public enum ImageLookup: Sendable, Hashable {
    /// The current image has this digest.
    case unchanged
    /// The current image is a different one.
    case image(ThumbcacheImage)
    /// There is no image.
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
        // An unknown state is treated as stale.
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
