import LinuxSupport
import NIOCore

/// The image formats that are kept. Raw values are part of the disk format.
public enum ImageKind: UInt8, Sendable, CaseIterable {
    case png = 1
    case jpeg = 2
    case gif = 3
    case webp = 4
    case avif = 5

    /// The registered media type.
    public var mediaType: String {
        switch self {
        case .png: "image/png"
        case .jpeg: "image/jpeg"
        case .gif: "image/gif"
        case .webp: "image/webp"
        case .avif: "image/avif"
        }
    }
}

/// What the bytes of an image say of themselves. See ``ImageSniffer``.
public struct ImageShape: Hashable, Sendable {
    public let kind: ImageKind
    /// Pixels, at least 1.
    public let width: UInt32
    public let height: UInt32

    public init(kind: ImageKind, width: UInt32, height: UInt32) {
        self.kind = kind
        self.width = width
        self.height = height
    }
}

/// The SHA-256 of an image's bytes.
public struct ImageDigest: Hashable, Sendable {
    private let start: SIMD16<UInt8>
    private let end: SIMD16<UInt8>

    /// `bytes` must hold exactly 32 bytes, else nil.
    public init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == 32 else { return nil }
        start = bytes.loadUnaligned(as: SIMD16<UInt8>.self)
        end = bytes.loadUnaligned(fromByteOffset: 16, as: SIMD16<UInt8>.self)
    }

    /// `bytes` must hold exactly 32 bytes, else nil.
    public init?(_ bytes: [UInt8]) {
        guard let digest = bytes.withUnsafeBytes({ ImageDigest($0) }) else { return nil }
        self = digest
    }

    /// The 32 bytes, most significant first.
    public var bytes: [UInt8] { [start, end].flatMap { half in half.indices.map { half[$0] } } }

    /// Lower-case hexadecimal, 64 characters.
    public var hex: String { Hex.text(bytes) }
}

/// Where an image came from.
public enum Provenance: Hashable, Sendable {
    /// A client PUT it.
    case put
    /// It was downloaded from this URL, normalised.
    case url(String)
}

/// All that is known of an image but its bytes. Kept sealed with them.
public struct ImageRecord: Hashable, Sendable {
    public var shape: ImageShape
    public var digest: ImageDigest
    public var provenance: Provenance
    public var freshness: Freshness
    /// What the origin said of it; empty for a PUT.
    public var fields: StoredFields
    /// The URL that gave it in the end, normalised, where redirects led there from its provenance.
    public var redirectedTo: String?
    /// The tokens that it is for, as ``LoginTokens/family`` tells them apart; nil where it is for all.
    public var tokenFamily: UInt32?
    /// Whether somebody was to be asked before the URL that it came from, and failed: so it stands in for what that one
    /// may have.
    public var isStandIn: Bool
    /// The digest of the picture that it was made from here, in another size; nil for one that is as it came. All but
    /// ``shape`` and ``digest`` is that picture's then.
    public var rendered: ImageDigest?

    public init(
        shape: ImageShape, digest: ImageDigest, provenance: Provenance, freshness: Freshness,
        fields: StoredFields = StoredFields(), redirectedTo: String? = nil, tokenFamily: UInt32? = nil,
        isStandIn: Bool = false, rendered: ImageDigest? = nil
    ) {
        self.shape = shape
        self.digest = digest
        self.provenance = provenance
        self.freshness = freshness
        self.fields = fields
        self.redirectedTo = redirectedTo
        self.tokenFamily = tokenFamily
        self.isStandIn = isStandIn
        self.rendered = rendered
    }
}

/// What is known of an image, held once by all that hold the image: it is 300 bytes long, and an image goes through
/// eight hands on its way from the disk.
public final class HeldRecord: Sendable {
    public let record: ImageRecord

    public init(_ record: ImageRecord) {
        self.record = record
    }
}

/// An image with what is known of it.
public struct Image: Sendable {
    public let held: HeldRecord
    public internal(set) var bytes: ImageBytes

    public var record: ImageRecord { held.record }

    public init(_ held: HeldRecord, bytes: ImageBytes) {
        self.held = held
        self.bytes = bytes
    }

    public init(record: ImageRecord, bytes: ImageBytes) {
        self.init(HeldRecord(record), bytes: bytes)
    }
}

/// An image's bytes lying ready to be sent: in one buffer, between the prefix and the suffix of the reply that
/// carries them, so that a hit hands the connection one buffer and copies nothing.
public struct ImageBytes: Sendable {
    /// Prefix, image and suffix.
    public private(set) var framed: ByteBuffer
    private let prefixLength: Int
    /// Bytes of the image alone.
    public let count: Int

    /// Bytes of memory that it takes.
    var storage: Int { framed.storageCapacity }

    /// The image alone, sharing the storage.
    public var image: ByteBuffer {
        framed.getSlice(at: framed.readerIndex + prefixLength, length: count) ?? ByteBuffer()
    }

    /// Overwrites the bytes with zeros, unless somebody else holds them too: a reply on its way, above all. Then they
    /// go with the last of those, as they are.
    mutating func wipe() {
        framed.wipe()
    }
}

/// How a reply frames an image. The domain does not know the encoding; whoever composes the program hands it in.
public struct ReplyFraming: Sendable {
    /// Writes what stands before an image of `count` bytes to the end of `room`, which has
    /// ``ImageBytes/Builder/headroom`` bytes, and returns how many bytes that is. In place, since an array would cost
    /// each image from disk 1,000 instructions.
    public let writePrefix: @Sendable (_ count: Int, _ room: UnsafeMutableRawBufferPointer) -> Int
    public let suffix: [UInt8]

    public init(
        writePrefix: @escaping @Sendable (_ count: Int, _ room: UnsafeMutableRawBufferPointer) -> Int, suffix: [UInt8]
    ) {
        self.writePrefix = writePrefix
        self.suffix = suffix
    }

    /// No frame at all.
    public static let bare = ReplyFraming(writePrefix: { _, _ in 0 }, suffix: [])
}

extension ImageBytes {
    /// Collects image bytes, of a length not yet known, behind room for the prefix.
    public struct Builder: Sendable {
        /// Bytes kept free before the image.
        public static let headroom = 24

        /// The image so far lies from index ``headroom`` to the writer index. Append to it; do not read or move back.
        public var buffer: ByteBuffer

        /// - Parameter capacity: bytes of image to make room for at once.
        public init(capacity: Int = 0) {
            buffer = ByteBufferAllocator().buffer(capacity: Self.headroom + capacity + 2)
            buffer.writeRepeatingByte(0, count: Self.headroom)
        }

        /// Bytes of image so far.
        public var count: Int { buffer.writerIndex - Self.headroom }

        /// Puts the frame around what was collected, and leaves the builder empty. Copies nothing: it works where the
        /// bytes lie. (A consuming function was handed a second reference by its callers, and copied every image.)
        public mutating func finish(_ framing: ReplyFraming) -> ImageBytes {
            let count = self.count
            let prefixLength = buffer.withUnsafeMutableReadableBytes { bytes in
                framing.writePrefix(count, UnsafeMutableRawBufferPointer(rebasing: bytes[..<Self.headroom]))
            }
            precondition(prefixLength <= Self.headroom, "a reply prefix fits into the headroom")
            buffer.moveReaderIndex(to: Self.headroom - prefixLength)
            buffer.writeBytes(framing.suffix)
            defer { buffer = ByteBuffer() }
            return ImageBytes(framed: buffer, prefixLength: prefixLength, count: count)
        }
    }

    /// Copies `image` into a frame. Costs one allocation and one copy.
    public init(copying image: ByteBuffer, framing: ReplyFraming) {
        var builder = Builder(capacity: image.readableBytes)
        builder.buffer.writeImmutableBuffer(image)
        self = builder.finish(framing)
    }
}
