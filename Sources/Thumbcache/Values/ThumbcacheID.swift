import NIOCore

/// A user, profile or session id: 1 to 512 opaque bytes, usually text.
public struct ThumbcacheID: Hashable, Sendable, ExpressibleByStringInterpolation, CustomStringConvertible {
    /// The bytes. Ids are compared by bytes, without Unicode normalization.
    public let bytes: [UInt8]

    /// Creates an id from any bytes.
    public init(bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }

    /// The text's UTF-8.
    public init(_ text: String) { bytes = Array(text.utf8) }

    /// The text's UTF-8.
    public init(stringLiteral text: String) { self.init(text) }

    /// The bytes decoded as UTF-8, with `U+FFFD` for invalid parts.
    public var description: String { String(decoding: bytes, as: UTF8.self) }

    @_spi(Wire) public var buffer: ByteBuffer { ByteBuffer(bytes: bytes) }

    @_spi(Wire) public init(_ buffer: ByteBuffer) { bytes = Array(buffer.readableBytesView) }

    /// Rejects `*`, which means every user in the protocol.
    var asUser: ThumbcacheID {
        get throws(ThumbcacheError) {
            guard bytes != [UInt8(ascii: "*")] else {
                throw .invalidRequest("'*' is not a valid user; use the methods for all users")
            }
            return self
        }
    }
}
