import NIOCore

/// A user, a profile or a session: 1 to 512 opaque bytes, mostly text.
public struct ThumbcacheID: Hashable, Sendable, ExpressibleByStringInterpolation, CustomStringConvertible {
    /// The bytes. Equal bytes are equal ids; there is no normalisation.
    public let bytes: [UInt8]

    /// An id of any bytes.
    public init(bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }

    /// The text's UTF-8.
    public init(_ text: String) { bytes = Array(text.utf8) }

    /// The text's UTF-8.
    public init(stringLiteral text: String) { self.init(text) }

    /// The bytes read as UTF-8, with `U+FFFD` for what is none.
    public var description: String { String(decoding: bytes, as: UTF8.self) }

    @_spi(Wire) public var buffer: ByteBuffer { ByteBuffer(bytes: bytes) }

    @_spi(Wire) public init(_ buffer: ByteBuffer) { bytes = Array(buffer.readableBytesView) }

    /// `*` stands for every user in the protocol. It must not come to mean that because an account has a strange name.
    var asUser: ThumbcacheID {
        get throws(ThumbcacheError) {
            guard bytes != [UInt8(ascii: "*")] else { throw .invalidRequest("'*' is no user") }
            return self
        }
    }
}
